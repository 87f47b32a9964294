"""What MLflow is told beside metrics: traces, the registry, the data's hashes, studies, the machine's load."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from builders import PROJECT
from stored_run import table, turn

from starpo.errors import UserError
from starpo.mirror.config import MlflowConfig
from starpo.mirror.lineage import dvc_digest
from starpo.mirror.mirror import MlflowMirror
from starpo.mirror.registry import CANDIDATE, CHAMPION, find, set_alias
from starpo.mirror.store import open_store
from starpo.mirror.traces import sampled_keys
from starpo.store.runs import RunRecord, new_record
from starpo.store.schemas import WINDOWED_TURNS

CONFIG = MlflowConfig.model_validate({"tracking": {"system_metrics_seconds": None, "trace_share": 0.5}})
PARAMETERS = {"run": {"seed": 1}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


def begun(
    root: Path, record: RunRecord, config: MlflowConfig = CONFIG, parent: str | None = None
) -> MlflowMirror:
    return MlflowMirror(root, config, open_store(root, config), record, parent=parent)


@pytest.fixture
def mirror(root: Path):
    mirror = begun(root, new_record("lake", "train_starpo_s", PARAMETERS))
    yield mirror
    mirror.close()


def client(root: Path):
    from mlflow import MlflowClient

    return MlflowClient(CONFIG.tracking_uri(root))


def test_a_share_of_an_evaluation_becomes_traces_with_a_span_per_turn(root, mirror, tmp_path) -> None:
    import mlflow

    seconds = {(0, 0): [0.5, 0.25], (2, 0): [0.1, 0.1]}
    assert mirror.log_traces("test-t0_5", 7, table(tmp_path / "step_0007.parquet"), seconds) == 2
    mlflow.flush_trace_async_logging()
    experiment = client(root).get_run(mirror.run_id).info.experiment_id
    found = client(root).search_traces(
        locations=[experiment],
        filter_string="tags.`starpo.success` = 'true' AND tags.`starpo.environment` = 'lake'",
    )
    assert len(found) == 2
    trace = next(each for each in found if each.info.tags["mlflow.traceName"] == "lake 0.0")
    assert trace.info.trace_metadata["mlflow.trace.session"] == "lake/test-t0_5/step_0007"
    assert trace.info.trace_metadata["mlflow.sourceRun"] == mirror.run_id
    root_span, *turns = sorted(trace.data.spans, key=lambda span: (span.parent_id is not None, span.name))
    assert root_span.outputs["success"] is True and root_span.outputs["return"] == 1.0
    assert [span.name for span in turns] == ["turn 0", "turn 1"]
    assert turns[0].inputs == {"observation": "state 0"}
    assert turns[0].outputs["thought"] == "go" and turns[0].outputs["executed actions"] == ["Up"]
    assert turns[0].attributes["sampled_tokens"] == 2 and turns[0].attributes["log_prob"] == -0.75
    lengths = [(span.end_time_ns - span.start_time_ns) / 1e9 for span in turns]
    assert lengths == pytest.approx([0.5, 0.25], abs=1e-6)


def test_a_shopping_trace_shows_page_possible_actions_and_click_and_where_the_prompt_is_a_window(
    root, mirror, tmp_path
) -> None:
    import mlflow

    told = {
        "page": "results",
        "actions": ["click[next >]", "click[b01]"],
        "success": False,
        "effective": True,
    }
    rows = [
        turn(0, number, stop="turn_limit")
        | {"environment": "shop", "executed": ["click[b01]"], "chain_start": number == 2, "schema_version": 2}
        | {"info": json.dumps(told if number == 0 else {})}
        for number in range(3)
    ]
    file = tmp_path / "step_0003.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=WINDOWED_TURNS), file)
    assert mirror.log_traces("shopping", 3, file, {}) == 1
    mlflow.flush_trace_async_logging()
    experiment = client(root).get_run(mirror.run_id).info.experiment_id
    (trace,) = client(root).search_traces(
        locations=[experiment], filter_string="tags.`starpo.environment` = 'shop'"
    )
    first, second, third = (span for span in trace.data.spans if span.parent_id is not None)
    seen = {"page": "results", "actions": ["click[next >]", "click[b01]"]}
    assert first.inputs == {"observation": "state 0"}
    assert first.outputs["executed actions"] == ["click[b01]"]
    assert first.outputs["info"] == second.inputs["info before"] == third.inputs["info before"] == seen
    assert "info" not in second.outputs
    assert [span.attributes.get("chain_start") for span in (first, second, third)] == [None, None, True]


def test_traces_of_runs_with_equal_seeds_do_not_replace_each_other(root, mirror, tmp_path) -> None:
    import mlflow

    for step in (1, 2):
        random.seed(0)
        assert mirror.log_traces("seeded", step, table(tmp_path / f"step_{step}.parquet"), {}) == 2
    mlflow.flush_trace_async_logging()
    experiment = client(root).get_run(mirror.run_id).info.experiment_id
    sessions = [
        trace.info.trace_metadata["mlflow.trace.session"]
        for trace in client(root).search_traces(locations=[experiment])
    ]
    assert [sessions.count(f"lake/seeded/step_{step:04d}") for step in (1, 2)] == [2, 2]


@pytest.mark.parametrize(("share", "groups"), [(0.0, []), (0.01, [0]), (0.5, [0, 2]), (1.0, [0, 1, 2, 3])])
def test_traced_trajectories_are_spread_over_the_suite(share, groups, tmp_path) -> None:
    assert sampled_keys(pq.read_table(table(tmp_path / "t.parquet")), share) == [(g, 0) for g in groups]


@pytest.mark.parametrize(("environment", "shown"), [("lake", "lake"), ("lakes:Frozen", "lakes-Frozen")])
def test_the_last_policy_is_the_candidate_and_a_champion_is_named_by_hand(
    root, mirror, tmp_path, environment, shown
) -> None:
    policy = tmp_path / "policy_0050"
    policy.mkdir()
    (policy / "manifest.json").write_text("{}")
    mirror.log_policy(policy, 50, {})
    version = mirror.register_candidate(environment, "lake-seed0", 50, finished=2000)
    assert version == mirror.register_candidate(environment, "lake-seed0", 50, finished=2000)
    # A training that ended earlier and is written later does not take its place.
    mirror.log_policy(policy, 40, {})
    assert mirror.register_candidate(environment, "lake-older", 40, finished=1000) != version
    found = find(client(root), CANDIDATE, environment)
    assert (found.environment, found.run, found.iteration) == (environment, "lake-seed0", 50)
    assert (found.directory / "manifest.json").exists()
    with pytest.raises(UserError, match="champion"):
        find(client(root), CHAMPION, environment)
    set_alias(client(root), environment, CHAMPION, version)
    assert find(client(root), CHAMPION, environment).version == version
    with pytest.raises(UserError, match=f"'pond'; there is one for: .*{shown}"):
        find(client(root), CHAMPION, "pond")


def test_the_digest_of_a_folder_is_the_one_in_dvc_lock(tmp_path) -> None:
    data = tmp_path / "data/02_rollouts/lake"
    (data / "deeper").mkdir(parents=True)
    for name in ("b.parquet", "a.parquet", "deeper/c.parquet"):
        (data / name).write_bytes(name.encode() * 100)
    stage = {"stages": {"make": {"cmd": "true", "outs": [{"data/02_rollouts/lake": {"persist": True}}]}}}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump(stage))
    dvc = str(Path(sys.executable).with_name("dvc"))
    for arguments in (["init", "--no-scm", "-q"], ["repro", "-q"]):
        subprocess.run([dvc, *arguments], cwd=tmp_path, check=True, capture_output=True)
    lock = yaml.safe_load((tmp_path / "dvc.lock").read_text())
    before = sorted(tmp_path.rglob("*"))
    assert dvc_digest(data) == lock["stages"]["make"]["outs"][0]["md5"]
    assert sorted(tmp_path.rglob("*")) == before


def test_trajectories_are_dataset_inputs_and_are_logged_once(root, mirror) -> None:
    folder = root / "data/02_rollouts/lake"
    folder.mkdir(parents=True)
    table(folder / "iter_0000.parquet")
    digests = mirror.log_data("lake")
    assert mirror.log_data("lake") == digests
    inputs = client(root).get_run(mirror.run_id).inputs.dataset_inputs
    assert [(each.dataset.name, each.dataset.digest + ".dir") for each in inputs] == list(digests.items())
    assert inputs[0].tags[0].value == "training"
    shutil.rmtree(root / "data/02_rollouts")


def test_runs_of_a_study_are_nested_in_one_parent_and_an_evaluation_in_its_training(root) -> None:
    children = []
    for name in ("cell-a", "cell-b"):
        mirror = begun(root, new_record(name, "train_starpo_s", {"run": {"seed": 1, "study": "four"}}))
        children.append(mirror.run_id)
        mirror.end("FINISHED")
    parents = {client(root).get_run(each).data.tags["mlflow.parentRunId"] for each in children}
    assert len(parents) == 1
    parent = client(root).get_run(parents.pop())
    assert (parent.info.run_name, parent.info.status) == ("four", "FINISHED")
    evaluation = begun(root, new_record("ev", "evaluate", PARAMETERS), parent=children[0])
    evaluation.end("FINISHED")
    assert client(root).get_run(evaluation.run_id).data.tags["mlflow.parentRunId"] == children[0]


def test_the_machine_is_watched_while_a_run_goes_on(root) -> None:
    config = MlflowConfig.model_validate({"tracking": {"system_metrics_seconds": 0.2}})
    mirror = begun(root, new_record("watched", "train_starpo_s", PARAMETERS), config)
    run_id = mirror.run_id
    import time

    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        metrics = client(root).get_run(run_id).data.metrics
        if any(name.startswith("system/cpu") for name in metrics):
            break
        time.sleep(0.2)
    mirror.end("FINISHED")
    assert any(name.startswith("system/cpu") for name in metrics)
    assert client(root).get_run(run_id).info.status == "FINISHED"


def test_shipped_mlflow_settings_are_the_defaults() -> None:
    raw = yaml.safe_load((PROJECT / "conf/base/mlflow.yml").read_text())
    assert MlflowConfig.model_validate(raw) == MlflowConfig()
