"""MLflow's store fails while a run goes on: what a person reads, how long the run waits, and what MLflow has then."""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_run import SUITE, begin_run, rows, store_evaluation, store_iteration

from starpo.mirror import live as live_module
from starpo.mirror import store as store_module
from starpo.mirror.config import MlflowConfig
from starpo.mirror.live import LiveMirror
from starpo.mirror.mirror import MlflowMirror
from starpo.mirror.stored import log_evaluation
from starpo.store.layout import RunPaths
from starpo.store.runs import read_record, write_record

COMMAND = "starpo runs mirror lake"
QUIET = {"tracking": {"system_metrics_seconds": None, "trace_share": 0.5}}


class Training:
    """A run that stores iterations and evaluations and has them mirrored."""

    def __init__(self, root: Path, uri: str = "sqlite:///mlflow.db") -> None:
        self.root, self.paths = root, RunPaths(root, "lake")
        begin_run(root)
        self.seen: list[str] = []
        config = MlflowConfig.model_validate(QUIET | {"server": {"mlflow_tracking_uri": uri}})
        self.live = LiveMirror(self.paths, config, self._record, self._remember)

    def _record(self):
        return read_record(self.root, "lake")

    def _remember(self, run_id: str) -> None:
        write_record(self.root, self._record().model_copy(update={"mlflow_run_id": run_id}))

    def _look(self) -> None:
        self.seen += self.live.news
        self.live.news.clear()

    def begin(self) -> None:
        self.live.begin()
        self._look()

    def iterate(self, iteration: int) -> None:
        metrics = store_iteration(self.paths, iteration)
        metrics |= {"seconds_rollout": 4.0, "tokens_per_second": 25.0}
        self.live.write(lambda to: to.log_iteration(metrics, iteration))
        self._look()

    def evaluate(self, step: int) -> None:
        store_evaluation(self.paths, step)
        self.live.write(lambda to: log_evaluation(to, self.paths, SUITE, step), again=True)
        self._look()

    def end(self) -> None:
        self.live.end("FINISHED")
        self._look()

    def complete(self) -> None:
        """Check that the store holds two iterations and two evaluations of the run, which has ended."""
        from mlflow import MlflowClient

        run_id = self._record().mlflow_run_id
        client = MlflowClient(f"sqlite:///{self.root.resolve()}/mlflow.db")
        run = client.get_run(run_id)
        assert run.info.status == "FINISHED"
        found = {(key, step) for key, _, _, step in rows(self.root, run_id)}
        assert {("seconds_rollout", 0), ("seconds_rollout", 1), ("tokens_per_second", 0)} <= found
        assert {("test-t0_5/success", 0), ("test-t0_5/success", 2)} <= found
        assert len(found) == len(rows(self.root, run_id))
        traces = client.search_traces(
            locations=[run.info.experiment_id], filter_string=f"metadata.`mlflow.sourceRun` = '{run_id}'"
        )
        assert len(traces) == 4


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_LOCK_WAIT", 0.3)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A lock on the database of another process's kind."""
    other = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield other
    other.close()


def test_a_database_locked_at_the_start_is_named_at_once_and_complete_once_the_lock_is_gone(
    tmp_path: Path, locked: sqlite3.Connection
) -> None:
    run = Training(tmp_path)
    run.begin()
    (sentence,) = run.seen
    assert sentence.startswith(
        "MLflow (sqlite:///mlflow.db): another process holds a lock on the database. The run goes on"
    )
    assert sentence.endswith(COMMAND)
    run.iterate(0)
    run.evaluate(0)
    assert len(run.seen) == 1  # said once
    locked.execute("ROLLBACK")
    run.iterate(1)
    run.evaluate(2)
    assert run.seen[1:] == ["MLflow (sqlite:///mlflow.db) works again; what it had missed is written"]
    run.end()
    run.complete()


def test_a_lock_in_the_middle_is_waited_for_shortly_and_what_it_kept_out_is_written_at_the_end(
    tmp_path: Path,
) -> None:
    run = Training(tmp_path)
    run.begin()
    run.iterate(0)
    other = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    started = time.monotonic()
    run.evaluate(0)
    assert time.monotonic() - started < 10  # MLflow alone waits 20 s for each statement
    assert "another process holds a lock" in run.seen[0]
    run.iterate(1)
    run.evaluate(2)
    other.close()
    run.end()
    assert "works again" in run.seen[1]
    run.complete()


def test_a_file_that_is_no_database_is_named_and_a_new_one_gets_everything(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(os.urandom(8192))
    run = Training(tmp_path)
    run.begin()
    assert "the file is damaged or no SQLite database" in run.seen[0]
    run.iterate(0)
    run.evaluate(0)
    run.iterate(1)
    (tmp_path / "mlflow.db").unlink()
    run.evaluate(2)
    run.end()
    run.complete()


def test_a_database_deleted_in_the_middle_is_made_anew_with_all_of_the_run(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.begin()
    first = read_record(tmp_path, "lake").mlflow_run_id
    run.iterate(0)
    run.evaluate(0)
    (tmp_path / "mlflow.db").unlink()
    run.iterate(1)
    assert "mlflow.db was deleted or replaced while the run went on" in run.seen[0]
    run.evaluate(2)
    run.end()
    assert read_record(tmp_path, "lake").mlflow_run_id != first
    run.complete()


def test_a_run_deleted_in_mlflow_in_the_middle_is_made_anew(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    run = Training(tmp_path)
    run.begin()
    run.iterate(0)
    run.evaluate(0)
    MlflowClient(f"sqlite:///{tmp_path.resolve()}/mlflow.db").delete_run(
        read_record(tmp_path, "lake").mlflow_run_id
    )
    run.iterate(1)
    assert COMMAND in run.seen[0]
    run.evaluate(2)
    run.end()
    run.complete()


def test_a_port_without_a_server_costs_seconds_and_the_last_line_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
    run = Training(tmp_path, uri)
    started = time.monotonic()
    run.begin()
    run.evaluate(0)
    run.end()
    assert time.monotonic() - started < 30
    assert f"MLflow ({uri}): nothing listens there" in run.seen[0]
    assert run.seen[1] == f"MLflow ({uri}) lacks a part of this run; when it works again: {COMMAND}"
    assert read_record(tmp_path, "lake").mlflow_run_id is None


def test_a_server_that_never_answers_is_waited_for_within_a_limit_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "PATIENCE", 2.5)
    connections = 0
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.setblocking(False)
        run = Training(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}")
        run.begin()
        for step in range(12):
            run.evaluate(step)
        run.end()
        while True:
            try:
                server.accept()
                connections += 1
            except BlockingIOError:
                break
    assert "it accepts connections and does not answer" in run.seen[0]
    assert len(run.seen) == 2
    # A second each: until 2.5 s are gone (three), and one at the end. Unbounded there would be 14.
    assert 3 <= connections <= 4


def test_the_time_limits_are_set_only_where_the_user_has_set_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    store_module.open_store(tmp_path, MlflowConfig())
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "1"
    assert os.environ.pop("MLFLOW_HTTP_REQUEST_MAX_RETRIES") == "1"


def test_another_process_that_opens_the_store_and_hangs_is_waited_for_within_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_TURN_WAIT", 0.3)
    run = Training(tmp_path)
    with (tmp_path / "data/00_runs/.mlflow.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run.begin()
    assert "another process opens the store and does not end" in run.seen[0]


def test_an_interruption_is_not_swallowed(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.begin()

    def interrupt(_: MlflowMirror) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.live.write(interrupt)
    run.live.end("KILLED")
