"""Kedro datasets: atomic, checked, and plain about damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from builders import raised_message, turn_row, turns_table
from kedro.io import DatasetError

from starpo.app.datasets import JSONFileDataset, PolicyDataset, TableDataset, read_table
from starpo.app.mistakes import user_mistake
from starpo.errors import UserError
from starpo.store.policy_state import PolicyState
from starpo.store.schemas import LABELS, SCORED, TABLES, TURNS, UPDATES, WINDOWED_TURNS

GOOD = turns_table(turn_row(turn=0), turn_row(turn=1))


def dataset(path: Path, *, table: str = "turns") -> TableDataset:
    return TableDataset(filepath=str(path), table=table)


def mistake(function: Any) -> str:
    """The user's message behind what Kedro raises."""
    with pytest.raises(DatasetError) as caught:
        function()
    message = user_mistake(caught.value)
    assert message is not None, caught.value
    return message


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    stored = dataset(tmp_path / "deep" / "turns.parquet")
    assert not stored.exists()
    stored.save(GOOD)
    assert stored.exists()
    assert stored.load().drop_columns("chain_start").equals(GOOD)
    assert files(tmp_path) == ["deep/turns.parquet"]


def test_record_batches_stream_into_one_table(tmp_path: Path) -> None:
    stored = dataset(tmp_path / "turns.parquet")
    stored.save(batch for row in range(3) for batch in turns_table(turn_row(turn=row)).to_batches())
    assert stored.load()["turn"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_an_empty_table_of_every_kind_is_fine(tmp_path: Path, table: str) -> None:
    stored = dataset(tmp_path / "empty.parquet", table=table)
    stored.save(TABLES[table].empty_table())
    assert stored.load().schema == (WINDOWED_TURNS if table == "turns" else TABLES[table])
    assert stored.load().num_rows == 0


def test_equal_tables_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        dataset(tmp_path / name).save(turns_table(turn_row(turn=0), turn_row(turn=1)))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a key that occurs twice": ({"turn": 0}, "no two rows have the same group, member and turn"),
    "a turn that is left out": ({"turn": 2}, "turns are 0, 1, 2"),
    "rows of two policies": ({"policy_step": 3}, "(difference = policy_step 3 instead of 0)"),
    "rows of two iterations": ({"iteration": 1}, "(difference = iteration 1 instead of 0)"),
    "rows of two splits": ({"split": "test"}, "(difference = split test instead of train)"),
    "a row without a split": ({"split": None}, "(difference = split None instead of train)"),
    "a row without a turn": ({"turn": None}, "turns are 0, 1, 2"),
    "a row without a group": (
        {"group": None},
        "1 of 2 rows, first: group None member 0 turn 1 (null_key = group)",
    ),
}

FAULTY: dict[str, dict[str, Any]] = {
    "every sampled token has a log-prob": {"response_logprobs": [-0.5]},
    "every turn has a sampled token": {"response_ids": [], "response_logprobs": []},
    "every turn has context": {"context_ids": []},
    "log-probs are finite": {"response_logprobs": [-0.5, float("-inf")]},
    "(largest_logprob <= 0.0001)": {"response_logprobs": [-0.5, 0.2]},
    "(smallest_logprob >= -100.0)": {"response_logprobs": [-0.5, -1000.0]},
    "(reward = inf)": {"reward": float("inf")},
}


@pytest.mark.parametrize("complaint", FAULTY)
def test_a_faulty_row_of_training_is_stored_and_one_of_an_evaluation_rejected(
    tmp_path: Path, complaint: str
) -> None:
    rows = [turn_row(turn=0), turn_row(**{"turn": 1} | FAULTY[complaint])]
    dataset(tmp_path / "train.parquet").save(turns_table(*rows))
    assert files(tmp_path) == ["train.parquet"], "quarantined where trajectories are scored"
    held_out = turns_table(*[row | {"split": "test", "stream": "suite"} for row in rows])
    message = mistake(lambda: dataset(tmp_path / "test.parquet").save(held_out))
    assert complaint in message
    assert "first: group 0 member 0 turn 1" in message
    assert files(tmp_path) == ["rejected/test.parquet", "train.parquet"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda table: table.drop_columns(["response"]), "the column 'response' is missing"),
        (lambda table: table.append_column("odd", [[1, 1]]), "the column 'odd' does not belong"),
        (
            lambda table: table.set_column(7, "turn", table["turn"].cast(pa.int64())),
            "the column 'turn' holds int64, expected int32",
        ),
        (lambda table: table.select(list(reversed(table.column_names))), "not in their order"),
    ],
    ids=["missing", "odd", "mistyped", "disordered"],
)
def test_a_table_of_another_shape_is_rejected_naming_the_column(
    tmp_path: Path, change: Any, complaint: str
) -> None:
    bad = change(GOOD)
    assert complaint in mistake(lambda: dataset(tmp_path / "turns.parquet").save(bad))
    assert pq.read_table(tmp_path / "rejected" / "turns.parquet").schema.names == bad.schema.names
    assert files(tmp_path) == ["rejected/turns.parquet"]


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_invariant_is_rejected_and_kept_as_evidence(tmp_path: Path, what: str) -> None:
    changes, complaint = BROKEN[what]
    stored = dataset(tmp_path / "turns.parquet")
    stored.save(GOOD)
    before = (tmp_path / "turns.parquet").read_bytes()
    bad = turns_table(turn_row(turn=0), turn_row(**{"turn": 1} | changes))
    message = mistake(lambda: stored.save(bad))
    assert complaint in message
    assert str(tmp_path / "turns.parquet") in message
    assert str(tmp_path / "rejected" / "turns.parquet") in message
    assert (tmp_path / "turns.parquet").read_bytes() == before, "nothing was overwritten"
    assert pq.read_table(tmp_path / "rejected" / "turns.parquet").num_rows == 2
    assert files(tmp_path) == ["rejected/turns.parquet", "turns.parquet"]


def test_rounding_above_zero_is_tolerated(tmp_path: Path) -> None:
    dataset(tmp_path / "t").save(turns_table(turn_row(split="test", response_logprobs=[5e-5, -0.5])))


def rows_of(schema: pa.Schema, **values: Any) -> pa.Table:
    """One row: zeros, empty texts and lists, with ``values`` set."""
    empty = {pa.bool_(): False, pa.string(): ""}
    row = {
        field.name: [0.0]
        if pa.types.is_list(field.type)
        else ""
        if pa.types.is_dictionary(field.type)
        else empty.get(field.type, 0)
        for field in schema
    }
    turns = {"turns": 1} if "turns" in schema.names else {}  # as many as there are rewards
    return pa.Table.from_pylist([row | {"schema_version": 1} | turns | values], schema=schema)


@pytest.mark.parametrize(
    ("table", "schema", "values", "complaint"),
    [
        ("scored", SCORED, {"return": float("nan")}, "every return is a finite number"),
        ("scored", SCORED, {"kept": True, "quarantined": True}, "no quarantined trajectory is kept"),
        ("updates", UPDATES, {"ratios": [float("inf")]}, "(infinite = ratios)"),
        ("updates", UPDATES, {"advantages": [float("nan")]}, "(infinite = advantages)"),
    ],
)
def test_scored_and_update_tables_have_their_invariants(
    tmp_path: Path, table: str, schema: pa.Schema, values: dict[str, Any], complaint: str
) -> None:
    stored = dataset(tmp_path / "t.parquet", table=table)
    stored.save(rows_of(schema))
    assert complaint in mistake(lambda: stored.save(rows_of(schema, **values)))


def test_a_trajectory_is_labelled_once(tmp_path: Path) -> None:
    stored = dataset(tmp_path / "t.parquet", table="labels")
    stored.save(rows_of(LABELS))
    twice = pa.concat_tables([rows_of(LABELS), rows_of(LABELS, turn=1)])
    assert "no two rows have the same group and member (occurrences = 1)" in mistake(
        lambda: stored.save(twice)
    )


def test_a_stream_that_breaks_off_leaves_the_old_table_and_no_litter(tmp_path: Path) -> None:
    stored = dataset(tmp_path / "turns.parquet")
    stored.save(GOOD)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from turns_table(turn_row(turn=7)).to_batches()
        raise RuntimeError("the engine died")

    with pytest.raises(DatasetError, match="the engine died"):
        stored.save(breaking())
    assert stored.load().drop_columns("chain_start").equals(GOOD)
    assert files(tmp_path) == ["turns.parquet"]


def write_raw(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


def test_another_schema_version_is_refused_naming_file_and_versions(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "old.parquet", turns_table(turn_row(schema_version=99)))
    message = raised_message(UserError, lambda: read_table(path, "turns"))
    assert str(path) in message
    assert "99" in message
    assert "reads 1" in message


def test_a_table_of_another_kind_or_without_a_version_is_refused(tmp_path: Path) -> None:
    foreign = write_raw(tmp_path / "foreign.parquet", pa.table({"a": [1]}))
    assert str(foreign) in raised_message(UserError, lambda: read_table(foreign, "turns"))
    other = write_raw(tmp_path / "other.parquet", rows_of(SCORED))
    assert str(other) in raised_message(UserError, lambda: read_table(other, "turns"))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a table at all"])
def test_a_corrupt_table_is_named_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "corrupt.parquet"
    path.write_bytes(content)
    message = mistake(dataset(path).load)
    assert str(path) in message
    assert "Remove the file" in message


def test_a_truncated_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    dataset(path).save(GOOD)
    path.write_bytes(path.read_bytes()[:-20])
    assert str(path) in mistake(dataset(path).load)


def test_a_missing_table_says_which_stage_is_missing(tmp_path: Path) -> None:
    assert "run the stage that writes it first" in mistake(dataset(tmp_path / "none.parquet").load)


def test_an_unknown_kind_of_table_is_a_mistake_in_the_catalog() -> None:
    message = raised_message(UserError, lambda: TableDataset(filepath="x", table="episodes"))
    assert "episodes" in message
    assert "turns" in message


def test_json_is_written_atomically_and_damage_is_named(tmp_path: Path) -> None:
    stored = JSONFileDataset(filepath=str(tmp_path / "deep" / "metrics.json"))
    stored.save({"b": 1, "a": [2.5]})
    assert stored.load() == {"a": [2.5], "b": 1}
    assert files(tmp_path) == ["deep/metrics.json"]
    (tmp_path / "deep" / "metrics.json").write_text("{")
    assert str(tmp_path / "deep" / "metrics.json") in mistake(stored.load)


def policy_state(tmp_path: Path, value: float) -> PolicyState:
    (tmp_path / "files").mkdir(exist_ok=True)
    (tmp_path / "files" / "config.json").write_text("{}")
    return PolicyState(
        run="run",
        iteration=1,
        policy_step=1,
        status="trained",
        counters={"actor_steps": 1, "critic_steps": 0, "skipped": 0},
        model_files=tmp_path / "files",
        harness={},
        weights={"a": torch.full((2,), value)},
        weights_in="policy_0001",
    )


def test_a_policy_replaces_the_old_one_whole_and_exists_by_its_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "policy_0001"
    stored = PolicyDataset(filepath=str(folder))
    assert not stored.exists()
    stored.save(policy_state(tmp_path, 1.0))
    (folder / "old.txt").write_text("left over")
    stored.save(policy_state(tmp_path, 2.0))
    assert stored.exists()
    assert (stored.load().tensors("weights") or {})["a"].tolist() == [2.0, 2.0]
    assert not (folder / "old.txt").exists()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["policy_0001"]
    (folder / "model.safetensors").unlink()
    assert stored.exists(), "also after its weights were pruned"
    (folder / "manifest.json").unlink()
    assert not stored.exists()


def test_a_policy_whose_writing_fails_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "policy_0001"
    stored = PolicyDataset(filepath=str(folder))
    stored.save(policy_state(tmp_path, 1.0))
    shared = torch.zeros(4)
    broken = policy_state(tmp_path, 2.0)
    assert broken.weights is not None
    broken.weights.update({"b": shared, "c": shared})  # safetensors refuses shared memory
    with pytest.raises(DatasetError):
        stored.save(broken)
    assert (stored.load().tensors("weights") or {})["a"].tolist() == [1.0, 1.0]


def test_schemas_name_every_column_once_and_carry_a_version() -> None:
    for schema in TABLES.values():
        assert len(set(schema.names)) == len(schema.names)
        assert "schema_version" in schema.names
    assert TURNS.names[:7] == SCORED.names[:7] == UPDATES.names[:7]
