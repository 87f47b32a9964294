"""The whole loop, really run: what it leaves behind, that it learns, and that it goes on after anything."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from kill_matrix import History, histories, killed
from projects import EVERY, GROUP_SIZE, GROUPS, ITERATIONS, SMOKE, TEST_PROMPTS, TRAINED, Command, Project

from starpo.app.commands.main import main as starpo
from starpo.evaluation.compare import compare
from starpo.monitor.glossary import ITERATION, MONITOR, ROLLOUT, TIMINGS, UPDATE
from starpo.store.policy_state import MODEL, STATE_FILES

pytestmark = pytest.mark.slow


def table(project: Project, layer: str, name: str, run: str = TRAINED) -> Any:
    return pq.read_table(project.folder(layer, run) / name)


def metrics(project: Project, run: str = TRAINED) -> list[dict[str, Any]]:
    files = sorted(project.folder("05_updates", run).glob("iter_*.json"))
    return [json.loads(file.read_text()) for file in files]


def evaluated() -> set[int]:
    """Iterations whose policy is evaluated."""
    return {*range(0, ITERATIONS, EVERY), ITERATIONS}


@pytest.mark.usefixtures("smoke")
class TestSmokeRun:
    """What the one command leaves behind."""

    def test_every_iteration_has_its_tables_and_metrics(self, project: Project) -> None:
        for layer in ("02_rollouts", "03_scored", "05_updates"):
            names = sorted(path.name for path in project.folder(layer, TRAINED).glob("*.parquet"))
            assert names == [f"iter_{i:04d}.parquet" for i in range(ITERATIONS)]
        assert [m["iteration"] for m in metrics(project)] == list(range(ITERATIONS))
        assert not list((project.root / "data").rglob("*.tmp"))

    def test_every_policy_has_a_manifest_and_the_last_ones_their_learner_state(
        self, project: Project
    ) -> None:
        models = project.folder("06_models", TRAINED)
        assert len(list(models.glob("policy_*/manifest.json"))) == ITERATIONS + 1
        last = {ITERATIONS - 1, ITERATIONS}
        for kind, kept in ((STATE_FILES["actor_moments"], last), (MODEL, last | evaluated())):
            stored = {path.name for path in models.iterdir() if (path / kind).exists()}
            assert stored == {f"policy_{iteration:04d}" for iteration in kept}

    def test_success_improves_beyond_chance(self, project: Project) -> None:
        file = project.folder("08_reporting", TRAINED) / f"comparison_{ITERATIONS:04d}.json"
        comparisons = json.loads(file.read_text())["comparisons"]
        assert {c["suite"] for c in comparisons} == {"test"}
        for comparison in comparisons:
            assert comparison["prompts"] == TEST_PROMPTS
            assert comparison["success_difference_low"] > 0
            assert comparison["success_after"] > comparison["success_before"]

    def test_engine_and_learner_agree_in_every_iteration(self, project: Project) -> None:
        for row in metrics(project):
            assert row["logprob_difference_max"] < 1e-3
            assert row["sync_difference"] < 1e-3
            assert row["status"] == "trained"

    def test_all_metrics_are_finite(self, project: Project) -> None:
        for row in metrics(project):
            numbers = [value for value in row.values() if isinstance(value, int | float)]
            assert np.isfinite(numbers).all(), row

    def test_the_glossary_knows_every_metric_so_the_monitor_may_refuse_others(self, project: Project) -> None:
        known = {*ITERATION, *ROLLOUT, *UPDATE, *MONITOR, *TIMINGS}
        for row in metrics(project):
            # ``monitor_<indicator>`` stands for all of these.
            assert {name for name in row if not name.startswith("monitor_")} <= known

    def test_group_members_start_from_the_same_prompt(self, project: Project) -> None:
        for iteration in range(ITERATIONS):
            turns = table(project, "02_rollouts", f"iter_{iteration:04d}.parquet").to_pandas()
            first = turns[turns["turn"] == 0]
            assert len(first) == GROUPS * GROUP_SIZE
            assert (first.groupby("group")["observation"].nunique() == 1).all()
            assert (first.groupby("group")["context_ids"].agg(lambda ids: len({*map(tuple, ids)})) == 1).all()
            assert first["dynamics_seed"].nunique() == len(first)

    def test_half_of_the_groups_are_kept_and_no_row_is_lost(self, project: Project) -> None:
        for iteration in range(ITERATIONS):
            scored = table(project, "03_scored", f"iter_{iteration:04d}.parquet").to_pandas()
            assert len(scored) == GROUPS * GROUP_SIZE
            kept = scored[scored["kept"]]
            assert 1 <= kept["group"].nunique() <= GROUPS // 2
            assert (kept["group_std"] > 0).all()
            updated = table(project, "05_updates", f"iter_{iteration:04d}.parquet").to_pandas()
            assert set(zip(updated["group"], updated["member"], strict=True)) == set(
                zip(kept["group"], kept["member"], strict=True)
            )

    @pytest.mark.parametrize("temperature", ["t0_5", "t1_0"])
    def test_evaluations_of_both_policies_are_paired(self, project: Project, temperature: str) -> None:
        before, after = (
            table(project, "07_evaluation", f"test-{temperature}/step_{step:04d}.parquet")
            for step in (0, ITERATIONS)
        )
        assert compare(before, after)["trajectories"] == TEST_PROMPTS  # raises where prompts or seeds differ
        assert before["policy_step"].unique().to_pylist() == [0]
        assert after["policy_step"].unique().to_pylist() == [ITERATIONS]

    def test_no_training_prompt_is_evaluated(self, project: Project) -> None:
        def seen(layer: str, pattern: str) -> set[str]:
            return {
                observation
                for path in project.folder(layer, TRAINED).glob(pattern)
                for observation in pq.read_table(path, columns=["observation"])["observation"].to_pylist()
            }

        def pairs(observations: set[str]) -> set[frozenset[str]]:
            return {frozenset(text.removeprefix("Arms: ").split(", ")) for text in observations}

        trained, tested = seen("02_rollouts", "*.parquet"), seen("07_evaluation", "test-*/step_*.parquet")
        validated = seen("07_evaluation", "validation-*/step_*.parquet")
        assert tested and validated
        assert not pairs(trained) & (pairs(tested) | pairs(validated))
        assert not pairs(validated) & pairs(tested)

    def test_the_name_of_the_run_is_in_no_table(self, project: Project) -> None:
        for layer in ("02_rollouts", "03_scored", "05_updates", "07_evaluation"):
            for path in project.folder(layer, TRAINED).rglob("*.parquet"):
                frame = pq.read_table(path)
                text = [c for c in frame.column_names if "string" in str(frame.schema.field(c).type)]
                assert TRAINED not in str(frame.select(text).to_pydict())

    def test_the_terminal_shows_one_line_per_iteration_and_the_result(self, smoke: Command) -> None:
        assert f"Run {TRAINED} is complete" in smoke.text
        assert "Traceback" not in smoke.text
        assert "DeprecationWarning" not in smoke.text
        assert len(smoke.text.splitlines()) < ITERATIONS + 40, smoke.text

    def test_the_same_command_again_does_nothing_and_says_so_quickly(self, project: Project) -> None:
        before = {path: path.stat().st_mtime_ns for path in (project.root / "data").rglob("*.parquet")}
        # In Kedro's newer spelling of the option, which works as well.
        again = project.run("--env=smoke", "--pipelines=train_starpo_s")
        assert again.code == 0, again.text
        assert f"Run {TRAINED} is complete" in again.text
        assert "deprecat" not in again.text.lower()
        assert again.cpu_seconds < 20
        assert before == {
            path: path.stat().st_mtime_ns for path in (project.root / "data").rglob("*.parquet")
        }

    def test_a_changed_parameter_on_an_existing_run_is_refused_naming_the_key(self, project: Project) -> None:
        message = project.refused(*SMOKE, "--params=algorithm.entropy_coefficient=0.5")
        assert "algorithm.entropy_coefficient" in message
        assert "0.5" in message


@pytest.mark.usefixtures("smoke")
def test_an_interrupted_run_ends_with_the_bytes_of_an_uninterrupted_one(project: Project) -> None:
    """As far as it goes, which is to the first evaluated policy that both keep."""
    # Learner states lie three iterations apart, so the run goes back to one and repeats what followed.
    arguments = (*SMOKE, f"--params=run.name=broken,run.checkpoint_every=3,run.iterations={EVERY}")
    models = project.folder("06_models", "broken")
    terminated = project.run_and_kill(*arguments, when=models / "policy_0001" / "manifest.json")
    assert terminated.code == 130, terminated.text
    assert "the same command goes on" in terminated.text
    for moment, count in (
        ("between files of a checkpoint", 3),
        ("before numbers go to MLflow", 2),
    ):
        assert killed(project, moment, count, *arguments), moment
    assert not (models / f"policy_{EVERY:04d}").exists(), "killed in the middle"
    resumed = project.run(*arguments)
    assert resumed.code == 0, resumed.text
    once = project.digests("broken")
    _assert_equal_as_far_as_it_goes(once, project.digests(TRAINED))
    _assert_one_number_per_step(histories(project, "broken"), histories(project, TRAINED))

    # Now a bit of the newest policy flips, and the update's table is lost.
    weights = models / f"policy_{EVERY:04d}" / MODEL
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (project.folder("05_updates", "broken") / f"iter_{EVERY - 1:04d}.parquet").unlink()
    repaired = project.run(*arguments)
    assert repaired.code == 0, repaired.text
    assert f"policy_{EVERY:04d}/{MODEL} is not what the run wrote: can be made again" in repaired.text
    assert f"iter_{EVERY - 1:04d}.parquet is missing: can be made again" in repaired.text
    assert project.digests("broken") == once, "the last learner state too"

    # A table of the start can not be made again: its policy's weights were pruned.
    table = project.folder("02_rollouts", "broken") / "iter_0001.parquet"
    table.write_bytes(table.read_bytes()[:1000])
    refused = project.refused(*arguments)
    assert "iter_0001.parquet is not what the run wrote: cannot be made again" in refused
    assert "`starpo runs repair broken`" in refused
    mended = CliRunner().invoke(starpo, ["runs", "repair", "broken", "--yes", "--root", str(project.root)])
    assert mended.exit_code == 0, mended.output
    going_on = project.run(*arguments)
    assert going_on.code == 0, going_on.text
    shown = CliRunner().invoke(starpo, ["runs", "show", "broken", "--root", str(project.root)]).output
    assert re.search(r"lost files +data/02_rollouts/broken/iter_0001.parquet", shown)


def _assert_equal_as_far_as_it_goes(short: dict[str, str], long: dict[str, str]) -> None:
    """Equal tables and policies. States are kept by another rule, and the last policy plays the test suites too."""
    last = f"/policy_{EVERY:04d}/"
    assert any("/learner/" in name and last in name for name in short)
    for name in short.keys() - long.keys():
        assert "06_models/" in name or ("/test-" in name and f"_{EVERY:04d}." in name), name
    both = short.keys() & long.keys()
    assert f"06_models/RUN{last}{MODEL}" in both
    assert len([name for name in both if name.startswith(("02_", "03_", "05_"))]) == 3 * EVERY
    assert {name: short[name] for name in both} == {name: long[name] for name in both}


def _assert_one_number_per_step(short: History, long: History) -> None:
    """No gap, no number twice, and the numbers of a run that was left alone."""
    assert [step for step, _ in short["success"]] == list(range(EVERY))
    for name, rows in short.items():
        steps, known = [step for step, _ in rows], dict(long.get(name, []))
        assert len(set(steps)) == len(steps), name
        assert all(known.get(step, value) == value for step, value in rows), name
