"""Each stage alone, on what a finished training left behind."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import EVERY, ITERATIONS, TEST_PROMPTS, TRAINED, Project
from safetensors.torch import load_file

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("smoke")]

#: The reference engine starts faster than vLLM, and is another witness where no token is drawn.
REFERENCE = "engine.kind=transformers"


def run_stage(project: Project, stage: str, iteration: int, *, engine: str = REFERENCE) -> str:
    """Run ``stage`` on the training at ``iteration``; returns the name of the stage's own run."""
    source = f"{TRAINED}@{iteration:04d}"
    done = project.run("--env=smoke", f"--pipeline={stage}", f"--params=run.source={source},{engine}")
    assert done.code == 0, done.text
    name = f"{stage}-{TRAINED}-{iteration:04d}"
    assert f"Run {name} is complete" in done.text
    return name


def table(project: Project, layer: str, run: str, file: str) -> pa.Table:
    return pq.read_table(project.folder(layer, run) / file)


def test_rollout_alone_draws_what_the_training_drew(project: Project) -> None:
    # With the training's engine: each engine has its own generator behind a seed.
    name = run_stage(project, "rollout", EVERY, engine="engine.kind=vllm")
    alone, trained = (
        table(project, "02_rollouts", run, f"iter_{EVERY:04d}.parquet") for run in (name, TRAINED)
    )
    for column in ("group", "member", "instance_seed", "dynamics_seed", "sampling_seed", "context_ids"):
        assert alone[column].to_pylist() == trained[column].to_pylist()
    pairs = zip(alone["response_ids"].to_pylist(), trained["response_ids"].to_pylist(), strict=True)
    equal = sum(one == other for one, other in pairs)
    assert equal >= 0.99 * len(alone), "the same tokens, but for rounding by what the engine had cached"


def test_reward_alone_scores_as_the_training_did(project: Project) -> None:
    name = run_stage(project, "reward", EVERY)
    alone, trained = (
        table(project, "03_scored", run, f"iter_{EVERY:04d}.parquet") for run in (name, TRAINED)
    )
    assert alone.equals(trained)


def test_update_alone_learns_what_the_training_learned(project: Project) -> None:
    name = run_stage(project, "update", ITERATIONS - 1)
    alone, trained = (
        load_file(project.folder("06_models", run) / f"policy_{ITERATIONS:04d}" / "model.safetensors")
        for run in (name, TRAINED)
    )
    assert alone.keys() == trained.keys()
    assert all((alone[key] == trained[key]).all() for key in alone)
    tables = (
        table(project, "05_updates", run, f"iter_{ITERATIONS - 1:04d}.parquet") for run in (name, TRAINED)
    )
    assert next(tables).equals(next(tables))


def test_evaluate_finds_what_the_training_found_and_pairs_two_policies_on_every_suite(
    project: Project,
) -> None:
    # With the training's engine.
    done = project.run(
        "--env=smoke",
        "--pipeline=evaluate",
        f"--params=run.source={TRAINED}@{ITERATIONS},evaluation.against={TRAINED}@0,run.name=pair",
    )
    assert done.code == 0, done.text
    for temperature in ("t0_5", "t1_0"):
        file = f"test-{temperature}/step_{ITERATIONS:04d}.json"
        alone, trained = (
            json.loads((project.folder("07_evaluation", run) / file).read_text()) for run in ("pair", TRAINED)
        )
        assert alone["prompts"] == trained["prompts"] == TEST_PROMPTS
        assert alone["success"] == pytest.approx(trained["success"], abs=0.01)
        assert alone["policy_step"] == ITERATIONS
        assert alone["success_of_optimum"] == alone["success"], "the better arm can always be chosen"
        assert (alone["floor_success"], alone["floor_return"]) == (0.5, pytest.approx(0.175))
    references = [
        json.loads((project.folder("07_evaluation", run) / "reference/test.json").read_text())
        for run in ("pair", TRAINED)
    ]
    assert references[0] == references[1], "no policy is involved"

    compared = json.loads(
        (project.folder("08_reporting", "pair") / f"comparison_{ITERATIONS:04d}.json").read_text()
    )
    assert compared["between"] == [f"{TRAINED}@0000", f"{TRAINED}@{ITERATIONS:04d}"]
    rows = {(row["suite"], row["temperature"]): row for row in compared["comparisons"]}
    assert rows.keys() == {(suite, t) for suite in ("test", "bandit_reversed") for t in (0.5, 1.0)}
    assert rows["test", 1.0]["success_difference_low"] > 0, "it had learned something"
    assert rows["bandit_reversed", 0.5]["success_after"] < 0.5, "and that the names' meaning stays"
    for (suite, temperature), row in rows.items():
        folder = f"{suite}-t{str(temperature).replace('.', '_')}"
        summary = json.loads(
            (project.folder("07_evaluation", "pair") / folder / f"step_{ITERATIONS:04d}.json").read_text()
        )
        labels = table(project, "07_evaluation", "pair", f"{folder}/labels_{ITERATIONS:04d}.parquet")
        failed = [label for label in labels["label"].to_pylist() if label != "lost_draw"]
        assert summary["success"] == row["success_after"]
        assert len(failed) == round((1 - summary["success"]) * summary["trajectories"])
        other = project.folder("07_evaluation", "pair") / f"against-{folder}" / "step_0000.json"
        assert json.loads(other.read_text())["success"] == row["success_before"]
    for title in ("Evaluation of", "Failures, share of", "Success of"):
        assert title in done.text
