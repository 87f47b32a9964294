"""The whole loop, really run: what it leaves behind, that it learns, and that it goes on after anything."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from projects import EVERY, GROUP_SIZE, GROUPS, ITERATIONS, SMOKE, TEST_PROMPTS, TRAINED, Command, Project

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
    killed = project.run_and_kill(*arguments, when=models / f"policy_{EVERY - 1:04d}" / "manifest.json")
    assert killed.code == 130, killed.text
    assert "the same command goes on" in killed.text
    assert not (models / f"policy_{EVERY:04d}").exists(), "killed in the middle"
    resumed = project.run(*arguments)
    assert resumed.code == 0, resumed.text
    once = project.digests("broken")
    _assert_equal_as_far_as_it_goes(once, project.digests(TRAINED))

    # Now the newest policy is lost, with the update's table.
    shutil.rmtree(models / f"policy_{EVERY:04d}")
    (project.folder("05_updates", "broken") / f"iter_{EVERY - 1:04d}.parquet").unlink()
    repaired = project.run(*arguments)
    assert repaired.code == 0, repaired.text
    assert project.digests("broken") == once, "the last learner state too"


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


@pytest.mark.usefixtures("smoke")
def test_a_damaged_state_is_named_before_any_work(project: Project) -> None:
    run = "damaged"
    shutil.copytree(project.folder("06_models", TRAINED), project.folder("06_models", run))
    weights = project.folder("06_models", run) / f"policy_{ITERATIONS:04d}" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    message = project.refused(*SMOKE, f"--params=run.name={run}")
    assert str(weights) in message.replace("\n", "")
