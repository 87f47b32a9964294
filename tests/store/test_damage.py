"""Missing and changed files of a run: what can be made again, and how the run goes on without the rest."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from builders import raised_message

from starpo.app.datasets import JSONFileDataset, PolicyDataset, TableDataset
from starpo.app.preflight import mend, rewind
from starpo.errors import UserError
from starpo.store.checksums import lost_files
from starpo.store.damage import clear_unfinished, settle, survey
from starpo.store.layout import Layer, Played, RunPaths
from starpo.store.policies import Policy
from starpo.store.policy_state import HARNESS, MANIFEST, MODEL, STATE_FILES, PolicyState
from starpo.store.retention import prune
from starpo.store.schemas import SCORED, TURNS, UPDATES

LAST = 5
SUITE = Played("test", 0.5)


def weights(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((8,), value)}


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run of five iterations: policies 0, 3 and 5 evaluated, 4 and 5 complete, 1 and 2 pruned."""
    found = RunPaths(tmp_path, "run")
    files = tmp_path / "files"
    files.mkdir()
    (files / "config.json").write_text('{"model_type": "llama"}')
    for iteration in range(LAST + 1):
        state = PolicyState(
            run="run",
            iteration=iteration,
            policy_step=iteration,
            status="trained" if iteration else "imported",
            counters={"actor_steps": iteration, "critic_steps": iteration, "skipped": 0},
            model_files=files,
            harness={"agent": {}},
            weights=weights(iteration),
            weights_in=f"policy_{iteration:04d}",
            parts={part: weights(number) for number, part in enumerate(STATE_FILES)} if iteration else {},
        )
        PolicyDataset(filepath=str(found.policy(iteration))).save(state)
    for iteration in range(LAST):
        for layer, kind, schema in (
            (Layer.ROLLOUTS, "turns", TURNS),
            (Layer.SCORED, "scored", SCORED),
            (Layer.UPDATES, "updates", UPDATES),
        ):
            TableDataset(filepath=str(found.table(layer, iteration)), table=kind).save(schema.empty_table())
        metrics = found.folder(Layer.UPDATES) / f"iter_{iteration:04d}.json"
        JSONFileDataset(filepath=str(metrics)).save({"iteration": iteration})
    for step in (0, 3, LAST):
        TableDataset(filepath=str(found.evaluation(SUITE, step)), table="turns").save(TURNS.empty_table())
        JSONFileDataset(filepath=str(found.turn_seconds(SUITE, step))).save({})
    reference = found.folder(Layer.EVALUATION) / "reference" / "lake_8.json"
    JSONFileDataset(filepath=str(reference)).save({})
    prune(found.folder(Layer.MODELS), keep_last=2, keep_models={0, 3, LAST})
    return found


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def source(paths: RunPaths, *files: Path) -> list[str | None]:
    """What each of ``files`` can be made again from, once all of them are changed."""
    for file in files:
        flip(file)
    found = {damage.path: damage.source for damage in survey(paths, trains=True)}
    assert set(found) == set(files)
    return [found[file] for file in files]


def test_a_sound_run_has_no_damage(paths: RunPaths) -> None:
    assert survey(paths, trains=True) == []


@pytest.mark.parametrize(
    ("layer", "iteration", "expected"),
    [
        (Layer.ROLLOUTS, 0, "policy_0000"),
        (Layer.ROLLOUTS, 1, None),  # its policy's weights are pruned
        (Layer.ROLLOUTS, 3, "policy_0003"),  # kept because it was evaluated
        (Layer.SCORED, 1, "its rollouts"),
        (Layer.UPDATES, 1, None),
        (Layer.UPDATES, 3, None),  # a model without its optimizer
        (Layer.UPDATES, 4, "policy_0004"),
        (Layer.UPDATES, 0, "policy_0000"),  # nothing was learned before it
    ],
)
def test_a_table_comes_again_from_what_made_it(
    paths: RunPaths, layer: Layer, iteration: int, expected: str | None
) -> None:
    assert source(paths, paths.table(layer, iteration)) == [expected]


def test_scores_without_their_rollouts_are_gone_with_them(paths: RunPaths) -> None:
    both = paths.table(Layer.ROLLOUTS, 2), paths.table(Layer.SCORED, 2)
    assert source(paths, *both) == [None, None]


def test_an_evaluation_comes_again_as_long_as_its_policy_is_sound(paths: RunPaths) -> None:
    assert source(paths, paths.evaluation(SUITE, 3), paths.turn_seconds(SUITE, 3)) == ["policy_0003"] * 2
    flip(paths.policy(3) / MODEL)
    assert {damage.source for damage in survey(paths, trains=True)} == {None}


def test_what_prompts_allow_comes_again_from_them(paths: RunPaths) -> None:
    (file,) = (paths.folder(Layer.EVALUATION) / "reference").iterdir()
    assert source(paths, file) == ["the suite's prompts"]


@pytest.mark.parametrize("name", [MODEL, *STATE_FILES.values(), HARNESS, "config.json", MANIFEST])
def test_a_run_goes_on_from_the_newest_sound_policy(
    paths: RunPaths, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    flip(paths.policy(LAST) / name)
    with caplog.at_level(logging.WARNING):
        mend(paths, trains=True)
    assert f"policy_0005/{name} is not what the run wrote: can be made again from policy_0004" in caplog.text
    rewind(paths.folder(Layer.MODELS))
    assert not (paths.policy(LAST) / MANIFEST).exists()
    assert Policy.open(paths.policy(4)).is_complete
    assert survey(paths, trains=True) == []
    assert any(file.is_file() for file in paths.set_aside(paths.folder(Layer.MODELS)).rglob("*"))


def test_without_a_sound_state_a_run_learns_again_from_its_first_policy(paths: RunPaths) -> None:
    flip(paths.policy(5) / STATE_FILES["critic"])
    flip(paths.policy(4) / STATE_FILES["actor_moments"])
    mend(paths, trains=True)
    rewind(paths.folder(Layer.MODELS))
    assert [number for number, path in paths.policies().items() if (path / MANIFEST).exists()] == [0]


def test_what_cannot_come_again_is_said_before_any_work_and_may_be_marked_lost(paths: RunPaths) -> None:
    rollouts, scored = paths.table(Layer.ROLLOUTS, 1), paths.table(Layer.SCORED, 1)
    flip(rollouts)
    scored.unlink()
    message = raised_message(UserError, lambda: mend(paths, trains=True))
    assert "02_rollouts/run/iter_0001.parquet is not what the run wrote: cannot be made again" in message
    assert "03_scored/run/iter_0001.parquet is missing: cannot be made again" in message
    assert "`starpo runs repair run`" in message
    assert rollouts.exists()  # nothing is touched before
    settle(paths, survey(paths, trains=True))
    mend(paths, trains=True)
    assert lost_files(paths) == [
        f"data/{layer}/run/iter_0001.parquet" for layer in ("02_rollouts", "03_scored")
    ]
    assert TableDataset(filepath=str(rollouts), table="turns").exists()
    assert paths.set_aside(rollouts).exists() and not rollouts.exists()


@pytest.mark.parametrize("name", [MODEL, HARNESS, MANIFEST])
def test_an_older_policy_is_lost_and_the_run_goes_on_behind_it(paths: RunPaths, name: str) -> None:
    flip(paths.policy(3) / name)
    assert "cannot be made again" in raised_message(UserError, lambda: mend(paths, trains=True))
    settle(paths, survey(paths, trains=True))
    mend(paths, trains=True)
    assert PolicyDataset(filepath=str(paths.policy(3))).exists()
    assert not (paths.policy(3) / MODEL).exists()
    rewind(paths.folder(Layer.MODELS))
    assert Policy.open(paths.policy(LAST)).is_complete


def test_the_first_policy_comes_again_from_where_the_run_started(paths: RunPaths) -> None:
    assert source(paths, paths.policy(0) / MODEL) == ["the policy that the run started from"]
    mend(paths, trains=True)
    assert not (paths.policy(0) / MANIFEST).exists()


def test_policies_that_are_about_to_be_learned_again_are_not_missed(paths: RunPaths) -> None:
    for iteration in (4, 5):
        (paths.policy(iteration) / MANIFEST).unlink()
    assert survey(paths, trains=True) == []


def test_what_a_stage_alone_made_comes_again_from_its_source(paths: RunPaths) -> None:
    flip(paths.table(Layer.ROLLOUTS, 1))
    (damage,) = survey(paths, trains=False)
    assert damage.source is not None


def test_half_written_files_of_all_layers_are_cleared(paths: RunPaths) -> None:
    left = [paths.folder(layer) / f".x.{number}.tmp" for number, layer in enumerate(Layer)]
    for file in left:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("half")
    clear_unfinished(paths)
    assert not any(file.exists() for file in left)
    assert survey(paths, trains=True) == []
