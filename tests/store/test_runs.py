"""Run records, the fingerprint guard, removal and the pandas frames."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import PROJECT, machine

import starpo
from starpo.errors import UserError
from starpo.store.layout import RunPaths
from starpo.store.lease import SILENT_SECONDS, Lease, silent_seconds
from starpo.store.runs import (
    RunRecord,
    check_same,
    continued,
    current_state,
    disk_use,
    find_root,
    list_runs,
    new_record,
    read_record,
    remove_run,
    run_fingerprint,
    run_folders,
    write_record,
)
from starpo.store.schemas import SCHEMA_VERSION, SCORED, TURNS, UPDATES, WINDOWED_TURNS
from starpo.store.sources import STAGES


def parameters(**run: Any) -> dict[str, Any]:
    return {
        "run": {"seed": 3, "iterations": 10, "name": None} | run,
        "environment": {"name": "frozen_lake", "arguments": {}},
        "learner": {"betas": (0.9, 0.999), "target_kl": None, "offload": False},
    }


def save(root: Path, name: str = "lake", **fields: Any) -> RunRecord:
    record = new_record(name, "train_starpo_s", parameters())
    record = record.model_copy(update={"state": "finished"} | fields)
    write_record(root, record)
    return record


def rows(schema: pa.Schema, count: int, **values: Any) -> pa.Table:
    """``count`` rows of nulls, with the columns in ``values`` set."""
    columns = {field.name: pa.nulls(count, field.type) for field in schema}
    columns["schema_version"] = pa.array([SCHEMA_VERSION] * count, pa.int16())
    for key, value in values.items():
        columns[key] = pa.array([value] * count, schema.field(key).type)
    return pa.table(columns, schema=schema)


def put(path: Path, content: pa.Table | dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pa.Table):
        pq.write_table(content, path)
    else:
        path.write_text(json.dumps(content))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with the run ``lake``: three iterations, two evaluated steps."""
    save(tmp_path)
    data = tmp_path / "data"
    for iteration in range(3):
        name = f"iter_{iteration:04d}"
        environment = ["frozen_lake", "sokoban", "bandit"][iteration]
        put(
            data / "02_rollouts/lake" / f"{name}.parquet",
            rows(TURNS, 2, iteration=iteration, environment=environment),
        )
        put(data / "03_scored/lake" / f"{name}.parquet", rows(SCORED, 1 + iteration, iteration=iteration))
        put(data / "05_updates/lake" / f"{name}.parquet", rows(UPDATES, 0 if iteration == 1 else 2))
        status = "skipped" if iteration == 1 else "trained"
        metrics = {"iteration": iteration, "status": status, "success": 0.1 * iteration}
        put(
            data / "05_updates/lake" / f"{name}.json",
            metrics if iteration != 1 else {"iteration": 1, "status": status},
        )
    for step in (0, 2):
        for suite in ("lake-t0_5", "lake-t1_0"):
            folder = data / "07_evaluation/lake" / suite
            put(folder / f"step_{step:04d}.parquet", rows(TURNS, 4, policy_step=step))
            put(
                folder / f"step_{step:04d}.json", {"success": 0.25 + step / 10, "prompts": 4, "suite": "lake"}
            )
    put(data / "06_models/lake/policy_0000/manifest.json", {"status": "trained"})
    put(
        data / "08_reporting/lake/comparison_0002.json",
        {"comparisons": [{"suite": "lake", "success_difference": 0.2}]},
    )
    return tmp_path


# --- records


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    record = new_record("lake", "train_starpo_s", parameters(), git_commit="abc", mlflow_run_id="f00")
    write_record(tmp_path, record)
    assert read_record(tmp_path, "lake") == record
    assert record.parameters["learner"]["betas"] == [0.9, 0.999]
    assert [path.name for path in RunPaths(tmp_path, "lake").record.parent.iterdir()] == ["run.json"]


def test_a_failed_write_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = save(tmp_path)

    def full(_: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_record(tmp_path, record.model_copy(update={"state": "failed"}))
    assert read_record(tmp_path, "lake").state == "finished"
    assert [path.name for path in RunPaths(tmp_path, "lake").record.parent.iterdir()] == ["run.json"]


def test_an_unknown_run_lists_the_known_ones(root: Path) -> None:
    save(root, "other")
    with pytest.raises(UserError, match=r"no run 'lak' .*known runs: lake, other"):
        read_record(root, "lak")
    with pytest.raises(UserError, match="none yet"):
        read_record(root / "elsewhere", "lake")


@pytest.mark.parametrize("text", ['{"name": "la', "[]", '{"schema_version": 1}', ""])
def test_a_broken_record_names_the_file_and_the_remedy(root: Path, text: str) -> None:
    RunPaths(root, "lake").record.write_text(text)
    with pytest.raises(UserError, match=r"00_runs/lake/run.json is corrupt .*starpo runs rm lake"):
        read_record(root, "lake")


def test_a_record_of_a_later_version_is_refused(root: Path) -> None:
    path = RunPaths(root, "lake").record
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
    with pytest.raises(UserError, match=r"run.json: schema_version 99 is unknown"):
        read_record(root, "lake")


@pytest.mark.parametrize("name", ["..", "../lake", "a/b", "", ".hidden", "-x"])
def test_a_name_that_leaves_its_folder_is_refused(root: Path, name: str) -> None:
    for action in (
        lambda: read_record(root, name),
        lambda: remove_run(root, name),
        lambda: disk_use(root, name),
    ):
        with pytest.raises(UserError, match="run name"):
            action()


# --- fingerprints


def test_equal_and_extended_parameters_are_accepted() -> None:
    record = new_record("lake", "train_starpo_s", parameters())
    check_same(record, parameters())
    check_same(record, parameters(iterations=500, name="lake", keep_last=9, source="a@1"))
    assert run_fingerprint(parameters(iterations=500, name="lake")) == record.fingerprint


def test_changed_parameters_are_refused_key_by_key() -> None:
    record = new_record("lake", "train_starpo_s", parameters())
    changed = parameters(seed=4, iterations=20, extra="new")
    changed["learner"] = {"betas": (0.9, 0.95), "target_kl": 0.1}
    with pytest.raises(UserError) as caught:
        check_same(record, changed)
    lines = str(caught.value).splitlines()
    assert lines[1:-1] == [
        "  learner.betas: [0.9, 0.999] → [0.9, 0.95]",
        "  learner.offload: false → (absent)",
        "  learner.target_kl: null → 0.1",
        '  run.extra: (absent) → "new"',
        "  run.seed: 3 → 4",
    ]
    assert "run.name=" in lines[-1] and "starpo runs rm lake" in lines[-1]
    assert run_fingerprint(changed) != record.fingerprint


def test_a_number_in_place_of_a_switch_is_another_parameter() -> None:
    changed = parameters()
    changed["learner"]["offload"] = 0
    with pytest.raises(UserError, match=r"learner\.offload: false → 0"):
        check_same(new_record("lake", "train_starpo_s", parameters()), changed)


def test_a_run_that_is_continued_belongs_to_this_process_and_keeps_its_start(tmp_path: Path) -> None:
    old = new_record("lake", "train_starpo_s", parameters())
    old = old.model_copy(update={"state": "killed", "message": "signal 15", "pid": 1, "host": "gone"})
    new = continued(tmp_path, old, parameters(iterations=20), machine())
    assert (new.state, new.message, new.pid, new.created) == ("running", "", os.getpid(), old.created)
    assert new.parameters["run"]["iterations"] == 20
    with pytest.raises(UserError, match=r"run\.seed"):
        continued(tmp_path, old, parameters(seed=9), machine())


# --- states


@pytest.fixture
def other_process():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def running(pid: int, start: int | None = None) -> RunRecord:
    record = new_record("lake", "train_starpo_s", parameters())
    return record.model_copy(update={"pid": pid, "process_start": start})


def test_a_running_run_without_its_process_is_interrupted(
    tmp_path: Path, other_process: subprocess.Popen
) -> None:
    assert current_state(tmp_path, new_record("lake", "train_starpo_s", parameters())) == "running"
    record = running(other_process.pid)
    assert current_state(tmp_path, record) == "running"
    with pytest.raises(UserError, match=f"worked on by process {other_process.pid}"):
        continued(tmp_path, record, parameters(), machine())
    other_process.kill()
    other_process.wait()
    assert current_state(tmp_path, record) == "interrupted"
    assert continued(tmp_path, record, parameters(), machine()).state == "running"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="start times are read from /proc")
def test_a_later_process_with_the_same_number_does_not_count(
    tmp_path: Path, other_process: subprocess.Popen
) -> None:
    assert current_state(tmp_path, running(other_process.pid, start=1)) == "interrupted"


def test_a_process_of_another_machine_is_gone_when_it_was_silent_for_long(root: Path) -> None:
    record = running(2**22 + 1).model_copy(update={"host": "elsewhere"})
    lease = RunPaths(root, "lake").lease
    assert current_state(root, record) == "interrupted"  # ended, or never begun
    lease.touch()
    assert current_state(root, record) == "running"
    for attempt in (lambda: continued(root, record, parameters(), machine()), lambda: _remove(root, record)):
        with pytest.raises(
            UserError, match=r"on elsewhere, which gave its last sign of life \d+ s ago; if that machine"
        ):
            attempt()
    os.utime(lease, (0, time.time() - SILENT_SECONDS - 1))
    assert current_state(root, record) == "interrupted"
    assert continued(root, record, parameters(), machine()).host != "elsewhere"
    _remove(root, record)
    assert not lease.exists()


def _remove(root: Path, record: RunRecord) -> None:
    write_record(root, record)
    # Written by the other machine, whose sign of life is the file's.
    remove_run(root, record.name)


def test_a_lease_gives_signs_of_life_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starpo.store.lease.BEAT_SECONDS", 0.01)
    file = tmp_path / "run" / "lease"
    assert silent_seconds(file) is None
    lease = Lease(file)
    lease.begin()
    os.utime(file, (0, 0))
    until = time.monotonic() + 20
    while silent_seconds(file) > 5 and time.monotonic() < until:
        time.sleep(0.01)
    assert silent_seconds(file) <= 5
    lease.end()
    assert silent_seconds(file) is None


def test_a_listing_goes_on_past_a_broken_record(root: Path) -> None:
    save(root, "broken")
    save(root, "gone", state="running", pid=2**22 + 1, process_start=None)
    RunPaths(root, "broken").record.write_text("{")
    states = {record.name: record.state for record in list_runs(root)}
    assert states == {"broken": "unreadable", "lake": "finished", "gone": "interrupted"}


# --- removal


def test_removal_takes_every_layer_of_one_run_only(root: Path) -> None:
    save(root, "lake2")
    put(root / "data/01_raw/lake/source.json", {})
    assert disk_use(root, "lake") == sum(
        path.stat().st_size
        for path in root.rglob("*")
        if path.is_file()
        and "lake" in path.relative_to(root).parts[2]
        and path.parts[-3:-1] != ("01_raw", "lake")
        and "lake2" not in path.parts
    )
    remove_run(root, "lake")
    left = sorted(str(path.relative_to(root / "data")) for path in root.rglob("*") if path.is_file())
    assert left == ["00_runs/lake2/run.json", "01_raw/lake/source.json"]
    assert disk_use(root, "lake") == 0
    with pytest.raises(UserError, match="no run 'lake'"):
        remove_run(root, "lake")


def test_an_interrupted_removal_can_be_repeated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = shutil.rmtree

    def interrupted(folder: Path) -> None:
        if "02_rollouts" in folder.parts:
            raise KeyboardInterrupt
        remove(folder)

    with monkeypatch.context() as patch:
        patch.setattr("starpo.store.runs.shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            remove_run(root, "lake")
    assert read_record(root, "lake").name == "lake", "what names the run goes last"
    assert len(run_folders(root, "lake")) == 2
    remove_run(root, "lake")
    assert run_folders(root, "lake") == []


def test_a_running_run_is_not_removed(root: Path) -> None:
    write_record(root, new_record("lake", "train_starpo_s", parameters()))
    with pytest.raises(UserError, match="is being worked on by process"):
        remove_run(root, "lake")
    assert RunPaths(root, "lake").record.exists()


def test_a_run_with_a_broken_or_missing_record_can_be_removed(root: Path) -> None:
    RunPaths(root, "lake").record.write_text("{")
    remove_run(root, "lake")
    put(root / "data/02_rollouts/lake/iter_0000.json", {})
    remove_run(root, "lake")
    assert not list(root.rglob("lake"))


def test_a_linked_folder_is_unlinked_and_its_target_kept(root: Path, tmp_path: Path) -> None:
    save(root, "linked")
    kept = put(tmp_path / "elsewhere" / "weights.json", {})
    (root / "data/06_models/linked").symlink_to(kept.parent)
    remove_run(root, "linked")
    assert kept.exists()


# --- tables


def test_open_run_gives_every_table_as_a_frame(root: Path) -> None:
    run = starpo.open_run("lake", root)
    assert run.state == "finished"
    assert run.parameters["run"]["seed"] == 3
    assert run.iterations == [0, 1, 2]
    assert [len(run.turns()), len(run.turns(1)), len(run.scored()), len(run.updates())] == [6, 2, 6, 4]
    assert run.turns().columns.tolist() == WINDOWED_TURNS.names
    assert run.turns()["environment"].tolist()[::2] == ["frozen_lake", "sokoban", "bandit"]
    assert len(run.updates(1)) == 0
    metrics = run.metrics()
    assert metrics["status"].tolist() == ["trained", "skipped", "trained"]
    assert pd.isna(metrics["success"][1]) and metrics["success"][2] == pytest.approx(0.2)
    assert run.comparison()["success_difference"].tolist() == [0.2]


def test_evaluations_are_chosen_by_suite_temperature_and_step(root: Path) -> None:
    run = starpo.open_run("lake", str(root))
    everything = run.evaluation()
    assert len(everything) == 16
    assert everything.columns.tolist() == ["suite", "step", *WINDOWED_TURNS.names]
    assert len(run.evaluation("lake")) == 16
    assert set(run.evaluation("lake-t0_5")["suite"]) == {"lake-t0_5"}
    assert set(run.evaluation("lake-t1_0", step=2)["step"]) == {2}
    summary = run.evaluation_summary()
    assert summary[["suite", "step", "success"]].values.tolist() == [
        ["lake-t0_5", 0, 0.25],
        ["lake-t0_5", 2, 0.45],
        ["lake-t1_0", 0, 0.25],
        ["lake-t1_0", 2, 0.45],
    ]
    with pytest.raises(UserError, match=r"no suite 'lak'; it has lake-t0_5, lake-t1_0"):
        run.evaluation("lak")
    with pytest.raises(UserError, match="no evaluation of step 1; it has 0, 2"):
        run.evaluation("lake", 1)


def test_the_project_is_found_from_a_folder_inside_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = root / "notebooks" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert starpo.open_run("lake").root == root.resolve()
    assert find_root(root) == root.resolve()


def test_what_is_not_there_yet_is_said(root: Path) -> None:
    save(root, "fresh", state="running")
    run = starpo.open_run("fresh", root)
    assert len(run.metrics()) == 0 and len(run.evaluation_summary()) == 0
    for table in (run.turns, run.scored, run.updates, run.evaluation, run.comparison):
        with pytest.raises(UserError, match="'fresh' has no"):
            table()
    with pytest.raises(UserError, match="no iteration 7; it has 0-2"):
        starpo.open_run("lake", root).scored(7)


@pytest.mark.parametrize("content", [b"", b"PAR1 half of a file", None])
def test_a_half_written_table_is_named(root: Path, content: bytes | None) -> None:
    path = root / "data/02_rollouts/lake/iter_0001.parquet"
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    run = starpo.open_run("lake", root)
    assert len(run.turns(0)) == 2
    with pytest.raises(UserError, match=r"02_rollouts/lake/iter_0001.parquet is corrupt or half-written"):
        run.turns()


def test_a_half_written_metrics_file_is_named(root: Path) -> None:
    (root / "data/05_updates/lake/iter_0002.json").write_text('{"iteration": 2, "suc')
    with pytest.raises(UserError, match=r"05_updates/lake/iter_0002.json is corrupt"):
        starpo.open_run("lake", root).metrics()


def test_a_table_of_another_version_is_refused(root: Path) -> None:
    put(root / "data/02_rollouts/lake/iter_0001.parquet", rows(TURNS, 1, schema_version=99))
    with pytest.raises(UserError, match=r"iter_0001.parquet: schema_version 99 is unknown"):
        starpo.open_run("lake", root).turns()


def test_a_table_with_other_columns_is_refused(root: Path) -> None:
    put(root / "data/03_scored/lake/iter_0001.parquet", rows(SCORED, 0).drop_columns(["kept"]))
    with pytest.raises(UserError, match=r"not a table of scored: column 'kept'"):
        starpo.open_run("lake", root).scored()
    put(root / "data/03_scored/lake/iter_0001.parquet", pa.table({"x": [1]}))
    with pytest.raises(UserError, match=r"schema_version None is unknown"):
        starpo.open_run("lake", root).scored()


def test_importing_the_package_stays_cheap() -> None:
    heavy = "{'pandas', 'pyarrow', 'torch', 'mlflow'}"
    code = f"import sys, starpo, starpo.store.runs; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = starpo.nonsense


def test_training_pipelines_are_told_by_their_name() -> None:
    folders = (PROJECT / "pipelines").glob("*/__init__.py")
    pipelines = {path.parent.name for path in folders} - {"base_policy", "report", "iteration"}
    trains = {name for name in pipelines if new_record("lake", name, {}).trains}
    assert trains == pipelines - set(STAGES)
