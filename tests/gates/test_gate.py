"""The validator behind the catalog: when it looks, what it keeps, what it says."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from builders import raised_message, turns_table
from kedro.io import DataCatalog, DatasetError
from projects import SOURCE
from tables import GROUPS, SIZE, metrics, observation, put, put_all, scored_table, turn_rows, update_rows

from starpo.app.mistakes import user_mistake
from starpo.app.parameters import resolve_parameters
from starpo.config.resolved import Resolved
from starpo.environments.splits import Split
from starpo.errors import UserError
from starpo.gates.data_docs import build_data_docs
from starpo.gates.gate import SUITES, Gate
from starpo.store.schemas import UPDATES

RUN = "trial"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    manifest = tmp_path / "data/06_models" / RUN / "policy_0000" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"policy_step": 0, "schema_version": 2, "files": {}}))
    return tmp_path


def resolve(root: Path, pipeline: str = "train_starpo_s", **gates: Any) -> Resolved:
    """The base parameters, made to fit the sound tables."""
    from starpo.app.config_loader import ConfigLoader

    loader = ConfigLoader(
        str(SOURCE / "conf"),
        base_env="base",
        default_run_env="base",
        merge_strategy={"parameters": "soft"},
    )
    changes = {
        "run": {"name": RUN, "iterations": 7},
        "environment": {
            "name": "mixture",
            "mixture": [{"name": "tables:Undeclared", "label": "frozen_lake", "weight": 1.0}],
        },
        "rollout": {"groups": GROUPS, "group_size": SIZE},
        "gates": {"every": 5, "max_quarantined_share": 0.2} | gates,
    }
    return resolve_parameters(dict(loader["parameters"]), pipeline, changes, root)


def gate(root: Path, suite: str = "rollouts", *, iteration: int = 0, command: Resolved | None = None) -> Gate:
    layer = {"rollouts": "02_rollouts", "scored": "03_scored"}.get(suite, "05_updates")
    ending = "json" if suite == "metrics" else "parquet"
    path = root / "data" / layer / RUN / f"iter_{iteration:04d}.{ending}"
    if suite == "evaluation":
        path = root / "data/07_evaluation" / RUN / "test_frozen_lake-t0_5" / f"step_{iteration:04d}.parquet"
    return Gate(suite=suite, filepath=str(path), command=command or resolve(root))


def stored_results(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "data/08_reporting" / RUN / "gates").glob("*.json"))


def test_sound_data_passes_unchanged_and_leaves_a_result_of_each_suite(root: Path) -> None:
    rollouts = turns_table(*turn_rows())
    assert gate(root).validate(rollouts) is rollouts
    scored = scored_table(turn_rows())
    assert gate(root, "scored").validate(scored) is scored
    updates = pa.Table.from_pylist(update_rows(), schema=UPDATES)
    assert gate(root, "updates").validate(updates) is updates
    assert gate(root, "metrics").validate(metrics()) == metrics()
    # A suite knows the members of a mixture by their names, not by their labels.
    played = put_all(environment="tables:Undeclared")(turn_rows(Split.TEST))
    gate(root, "evaluation").validate(turns_table(*played))
    assert stored_results(root) == [
        "metrics-iter_0000",
        "rollouts-iter_0000",
        "scored-iter_0000",
        "test_frozen_lake-t0_5-step_0000",
        "updates-iter_0000",
    ]
    assert not list(root.rglob("rejected"))


def test_suites_run_when_due_and_on_the_last_iteration(root: Path) -> None:
    for iteration in range(7):
        gate(root, "metrics", iteration=iteration).validate(metrics() | {"iteration": iteration})
    assert stored_results(root) == ["metrics-iter_0000", "metrics-iter_0005", "metrics-iter_0006"]


def test_without_every_no_suite_runs_and_the_cheap_checks_stay(root: Path) -> None:
    never = resolve(root, every=None)
    gate(root, command=never).validate(turns_table(*put_all(policy_step=7)(turn_rows())))
    assert stored_results(root) == []
    assert (
        "expected that all metrics are finite; found 1 of 11 rows, first: metric entropy (value = nan)"
        in raised_message(
            UserError, lambda: gate(root, "metrics").validate(metrics() | {"entropy": float("nan")})
        )
    )


def test_a_rejected_table_is_kept_and_the_message_says_all(root: Path) -> None:
    bad = turns_table(*put_all(policy_step=7)(turn_rows()))
    message = raised_message(UserError, lambda: gate(root).validate(bad))
    kept = root / "data/02_rollouts" / RUN / "rejected" / "iter_0000.parquet"
    assert pq.read_table(kept).equals(bad)
    for part in (
        str(root / "data/02_rollouts" / RUN / "iter_0000.parquet"),
        "expected that the weights' version is that of the iteration's policy (policy_step = 0)",
        "16 of 16 rows, first: group 0 member 0 turn 0 (policy_step = 7)",
        str(kept),
        "look at the engine's weight sync",
        "the same command goes on from here",
    ):
        assert part in message
    assert stored_results(root) == ["rollouts-iter_0000"], "the Data Docs show it"


def test_leaked_test_instances_are_rejected_with_the_remedy(root: Path) -> None:
    leaked = turns_table(*put(0, observation=observation(Split.TEST))(turn_rows()))
    message = raised_message(UserError, lambda: gate(root).validate(leaked))
    assert "every first observation belongs to the table's split" in message
    assert "would spoil the evaluation" in message


def test_a_run_in_alarm_by_every_indicator_passes_the_gate(root: Path) -> None:
    limits = yaml.safe_load((SOURCE / "conf/base/parameters_monitor.yml").read_text())["monitor"][
        "indicators"
    ]
    stages = {f"monitor_{name}": 2.0 for name in limits} | {"monitor": 2.0, "monitor_approx_loss": 2.0}
    assert "monitor_thought_distinct_share" in stages
    gate(root, "metrics").validate(metrics() | stages)
    with pytest.raises(UserError, match="monitor_entropy"):
        gate(root, "metrics").validate(metrics() | stages | {"monitor_entropy": 3.0})


@pytest.mark.parametrize("suite", ["scored", "updates", "metrics"])
def test_every_suite_rejects_into_its_own_layer(root: Path, suite: str) -> None:
    data: Any = {
        "scored": lambda: pa.Table.from_pylist(
            put(0, group_std=-1.0)(scored_table(turn_rows()).to_pylist()),
            schema=scored_table(turn_rows()).schema,
        ),
        "updates": lambda: pa.Table.from_pylist(put(0, values=[0.0])(update_rows()), schema=UPDATES),
        "metrics": lambda: metrics() | {"gradient_norm": 1e7},
    }[suite]()
    message = raised_message(UserError, lambda: gate(root, suite).validate(data))
    (kept,) = root.rglob("rejected/*")
    assert str(kept) in message
    if suite == "metrics":
        assert json.loads(kept.read_text()) == data
        assert "first: metric gradient_norm (outside = 9000000.0)" in message
        assert "gates.limits" in message


def test_a_faulty_row_passes_with_a_warning(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="starpo"):
        gate(root).validate(turns_table(*put(3, reward=9.0)(turn_rows())))
    assert "returns lie in the environment's return_range" in caplog.text
    assert "quarantined" in caplog.text
    assert not list(root.rglob("rejected"))


@pytest.mark.parametrize("iteration", [0, 3], ids=["due", "not due"])
def test_too_many_faulty_rows_stop_the_run_on_any_iteration(root: Path, iteration: int) -> None:
    rows = put_all(iteration=iteration)(turn_rows())
    for row in (1, 5):  # two of eight trajectories, a fifth may
        rows = put(row, response_logprobs=[-0.5, float("nan")])(rows)
    message = raised_message(UserError, lambda: gate(root, iteration=iteration).validate(turns_table(*rows)))
    assert "2 of 8 trajectories (logprob_not_finite 2)" in message
    assert "group 0 member 0" in message
    assert "raise gates.max_quarantined_share" in message
    tolerant = resolve(root, max_quarantined_share=0.3)
    gate(root, iteration=iteration, command=tolerant).validate(turns_table(*rows))


def test_trajectories_without_a_row_count_as_lost(root: Path) -> None:
    rows = [row for row in turn_rows() if row["group"] != 3]
    message = raised_message(UserError, lambda: gate(root).validate(turns_table(*rows)))
    assert "2 of 8 trajectories (no_row 2), first: group 3 member 0" in message


def test_a_score_that_most_trajectories_fail_stops_the_run(root: Path) -> None:
    rows = [row | {"trajectory_stop": "environment_error"} for row in turn_rows()]
    message = raised_message(UserError, lambda: gate(root, "scored").validate(scored_table(rows)))
    assert "8 of 8 trajectories (environment_error 8)" in message


def test_a_table_of_another_shape_is_rejected_naming_the_column(root: Path) -> None:
    table = turns_table(*turn_rows()).drop_columns(["response_ids"])
    message = raised_message(UserError, lambda: gate(root, iteration=3).validate(table))
    assert "the column 'response_ids' is missing" in message
    assert list(root.rglob("rejected/iter_0003.parquet"))


def test_a_stream_of_batches_is_gathered_and_an_empty_table_passes(root: Path) -> None:
    table = turns_table(*turn_rows())
    assert gate(root).validate(iter(table.to_batches(max_chunksize=3))).num_rows == table.num_rows
    empty = table.slice(0, 0)
    assert gate(root, iteration=5).validate(empty) is empty


def test_an_unknown_suite_is_a_mistake_in_the_catalog(root: Path) -> None:
    message = raised_message(UserError, lambda: Gate(suite="labels", filepath="x", command=resolve(root)))
    assert all(name in message for name in ("labels", *SUITES))


def catalog(root: Path) -> DataCatalog:
    """The project's own catalog entries of one iteration, under ``root``."""
    text = (SOURCE / "conf/base/catalog.yml").read_text()
    text = text.replace("${run:name}", RUN).replace("data/", f"{root}/data/")
    entries = yaml.safe_load(text)
    for entry in entries.values():
        if "validator" in entry:
            assert entry["validator"]["options"]["command"] == "${command:}"
            entry["validator"]["options"]["command"] = resolve(root)
    return DataCatalog.from_config({name: entries[name] for name in entries if name.startswith("iter_{")})


def test_a_rejected_table_stops_the_save_and_a_mended_one_goes_on(root: Path) -> None:
    path = root / "data/02_rollouts" / RUN / "iter_0000.parquet"
    with pytest.raises(DatasetError) as caught:
        catalog(root).save("iter_0000.rollouts", turns_table(*put_all(policy_step=7)(turn_rows())))
    assert "policy_step" in (user_mistake(caught.value) or "")
    assert not path.exists()
    catalog(root).save("iter_0000.rollouts", turns_table(*turn_rows()))
    assert path.exists()
    assert (path.parent / "rejected" / path.name).exists(), "the evidence stays"


def test_every_table_of_an_iteration_has_its_gate(root: Path) -> None:
    entries = yaml.safe_load((SOURCE / "conf/base/catalog.yml").read_text())
    for name, entry in entries.items():
        if "validator" in entry:
            assert entry["validator"]["options"]["filepath"] == entry["filepath"], name
            assert entry["validator"]["class"] == "starpo.gates.gate.Gate"
    guarded = {entry["validator"]["options"]["suite"] for entry in entries.values() if "validator" in entry}
    assert guarded == SUITES.keys()


def test_data_docs_open_offline_and_are_built_once(root: Path) -> None:
    assert build_data_docs(root, RUN) is None
    gate(root).validate(turns_table(*put(3, reward=9.0)(turn_rows())))
    gate(root, "metrics").validate(metrics())
    index = build_data_docs(root, RUN)
    assert index == root / "data/08_reporting" / RUN / "data_docs" / "index.html"
    page = index.with_name("rollouts-iter_0000.html")
    for html in (index.read_text(), page.read_text()):
        assert "http" not in html, "nothing is loaded from the network"
        assert "<script" not in html
        assert "returns lie in the environment" in html
    assert 'href="rollouts-iter_0000.html"' in index.read_text()
    assert '<span class="passed">passed</span>' in index.read_text()
    assert "quarantines the trajectory" in page.read_text()
    assert "values must be less than or equal to" in page.read_text(), "as Great Expectations says it"
    assert 'href="' not in page.read_text().replace('href="index.html"', ""), (
        "there is no GX project to link to"
    )
    assert build_data_docs(root, RUN) is None, "nothing new"
    gate(root, "metrics", iteration=5).validate(metrics() | {"iteration": 5})
    assert build_data_docs(root, RUN) == index
    assert "iter_0005.json" in index.read_text()


def test_the_gates_count_their_seconds(root: Path) -> None:
    Gate.clock.take()
    gate(root, "metrics").validate(metrics())
    spent = Gate.clock.take()
    assert 0 < spent <= Gate.clock.total
    assert Gate.clock.take() == 0
