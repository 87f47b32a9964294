"""The record of a run, ``data/00_runs/<run>/run.json``, and what can be asked of all runs.

The record says which parameters a run was made with. An existing run goes on with the same parameters only:
its data would otherwise be of two kinds without a trace.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from starpo.config.identity import EXTENDABLE, fingerprint, flatten
from starpo.errors import UserError
from starpo.store.durable import write_text
from starpo.store.layout import Layer, RunPaths, layer_folder
from starpo.store.lease import SILENT_SECONDS, silent_seconds
from starpo.store.machine import Machine

if TYPE_CHECKING:
    from starpo.store.run_tables import Run

logger = logging.getLogger(__name__)

RECORD_VERSION = 1
"""Raised with every change of ``RunRecord`` that older records do not fit."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")

State = Literal["running", "finished", "stopped", "failed", "killed", "interrupted", "unreadable"]
"""The last two are never written: ``interrupted`` is a running run without its process, ``unreadable`` stands
for a broken record in a listing."""


class RunRecord(BaseModel):
    """What is known about one run apart from its tables."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """Folder name in every data layer."""
    pipeline: str
    """Pipeline that made it."""
    state: State
    """Where it stands."""
    created: int
    """First start, unix ms."""
    fingerprint: str
    """Of all parameters that may not change."""
    parameters: dict[str, Any]
    """All parameters, resolved."""
    message: str = ""
    """Why it stopped or failed."""
    git_commit: str | None = None
    """Commit of the code, ``-dirty`` at the end if files differed."""
    mlflow_run_id: str | None = None
    """Its mirror in MLflow."""
    forked_from: str | None = None
    """``RUN@ITERATION`` whose learner state it started from."""
    pid: int = 0
    """Process that works or worked on it."""
    host: str = ""
    """Machine of that process."""
    process_start: int | None = None
    """Start of that process in kernel ticks since boot, which tells it from a later one with the same pid."""
    machines: tuple[Machine, ...] = ()
    """What it was computed on, in order of use; the last one is the present or latest. Empty: not recorded."""
    schema_version: int = RECORD_VERSION
    """Version of this record."""

    @property
    def trains(self) -> bool:
        """Whether it goes through iterations; stages alone, such as an evaluation, have none."""
        return self.pipeline.startswith("train_")


def new_record(name: str, pipeline: str, parameters: dict[str, Any], **fields: Any) -> RunRecord:
    """A running record of this process, created now. ``fields``: any further field of ``RunRecord``."""
    plain = _plain(parameters)
    return RunRecord(
        name=check_name(name),
        pipeline=pipeline,
        state="running",
        created=time.time_ns() // 1_000_000,
        fingerprint=run_fingerprint(plain),
        parameters=plain,
        **_process(),
        **fields,
    )


def continued(root: Path, record: RunRecord, parameters: dict[str, Any], machine: Machine) -> RunRecord:
    """The record of a run taken up again by this process on ``machine``, with extended parameters.

    One line says so where the run was on another machine last and has work left: its bytes are then those of no
    single machine.

    Raises:
        UserError: the parameters differ (see ``check_same``), or another process works on the run.
    """
    check_same(record, parameters)
    if record.state == "running" and record.pid != os.getpid() and current_state(root, record) == "running":
        raise UserError(
            f"run {record.name!r} is being worked on by process {record.pid} on {record.host}"
            f"{_sign_of_life(root, record)}. Wait for it, or choose another run.name=."
        )
    plain, machines = _plain(parameters), record.machines
    done = record.state == "finished" and record.parameters == plain
    if not done and machines[-1:] != (machine,):
        if machines:
            logger.warning(
                "run %r goes on on another machine (%s): equal bytes are not promised any more",
                record.name,
                ", ".join(machines[-1].differences(machine)),
            )
        machines = (*machines, machine)
    return record.model_copy(
        update={
            "state": "running",
            "message": "",
            "parameters": plain,
            "machines": machines,
            **_process(),
        }
    )


def read_record(root: Path, name: str) -> RunRecord:
    """Read ``run.json``.

    Raises:
        UserError: no such run (the known ones are listed), or the file is corrupt or of an unknown version.
    """
    path = RunPaths(root, check_name(name)).record
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError("not a JSON object")
        if raw.get("schema_version") != RECORD_VERSION:
            raise UserError(
                f"{path}: schema_version {raw.get('schema_version')!r} is unknown; this version of starpo "
                f"reads {RECORD_VERSION}. Open the run with the version that wrote it."
            )
        return RunRecord.model_validate(raw)
    except FileNotFoundError:
        known = ", ".join(run_names(root)) or "none yet"
        raise UserError(
            f"there is no run {name!r} in {path.parent.parent}; known runs: {known}. See starpo runs list."
        ) from None
    except (OSError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path} is corrupt ({reason}). Restore the file, or remove the run: starpo runs rm {name}"
        ) from None


def write_record(root: Path, record: RunRecord) -> Path:
    """Write ``run.json`` in one step: a reader sees the old record or the new one, never a part."""
    path = RunPaths(root, check_name(record.name)).record
    write_text(path, json.dumps(record.model_dump(mode="json"), indent=2, sort_keys=True) + "\n")
    return path


def check_same(record: RunRecord, parameters: dict[str, Any]) -> None:
    """Refuse parameters that would change an existing run; those in ``EXTENDABLE`` may differ.

    Raises:
        UserError: the difference, key by key, and the two ways out.
    """
    old, new = flatten(_plain(record.parameters)), flatten(_plain(parameters))
    absent = object()
    lines = []
    for key in sorted((old.keys() | new.keys()) - EXTENDABLE):
        before, after = old.get(key, absent), new.get(key, absent)
        if before != after or (isinstance(before, bool) != isinstance(after, bool)):
            shown = ["(absent)" if value is absent else json.dumps(value) for value in (before, after)]
            lines.append(f"  {'.'.join(key)}: {shown[0]} → {shown[1]}")
    if lines:
        raise UserError(
            f"run {record.name!r} exists with other parameters:\n"
            + "\n".join(lines)
            + f"\nGo on with the old ones, choose another name (--params run.name=…), "
            f"or remove the run first: starpo runs rm {record.name}"
        )


def run_fingerprint(parameters: dict[str, Any]) -> str:
    """Fingerprint of the parameters that may not change; equal after a round trip through JSON."""
    flat = flatten(_plain(parameters))
    return fingerprint({".".join(key): value for key, value in flat.items() if key not in EXTENDABLE})


def current_state(root: Path, record: RunRecord) -> State:
    """The stored state, or ``interrupted`` where the process of a running run is gone.

    The process of another machine cannot be seen; it is gone when it was silent for ``SILENT_SECONDS``.
    """
    if record.state != "running":
        return record.state
    if record.host != socket.gethostname():
        silent = silent_seconds(RunPaths(root, record.name).lease)
        return "interrupted" if silent is None or silent > SILENT_SECONDS else "running"
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return "interrupted"
    except OSError:
        pass  # it exists and belongs to someone else
    same = record.process_start is None or _process_start(record.pid) == record.process_start
    return "running" if same else "interrupted"


def run_names(root: Path) -> list[str]:
    """Names of all runs with a record, sorted."""
    return sorted(path.parent.name for path in layer_folder(root, Layer.RECORDS).glob("*/run.json"))


def list_runs(root: Path) -> list[RunRecord]:
    """All runs, oldest first, each with its current state. A broken record is listed as ``unreadable``."""
    records = []
    for name in run_names(root):
        try:
            record = read_record(root, name)
            records.append(record.model_copy(update={"state": current_state(root, record)}))
        except UserError as error:
            records.append(
                RunRecord(
                    name=name,
                    pipeline="",
                    state="unreadable",
                    created=0,
                    fingerprint="",
                    parameters={},
                    message=str(error),
                )
            )
    return sorted(records, key=lambda record: (record.created, record.name))


def run_folders(root: Path, name: str) -> list[Path]:
    """The run's folders in all data layers, its record's last."""
    paths = RunPaths(root, check_name(name))
    folders = [paths.folder(layer) for layer in reversed(Layer)]
    return [folder for folder in folders if folder.exists() or folder.is_symlink()]


def disk_use(root: Path, name: str) -> int:
    """Bytes of all files of a run."""
    files = (file for folder in run_folders(root, name) for file in folder.rglob("*"))
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())


def remove_run(root: Path, name: str) -> None:
    """Delete a run from every data layer; the record goes last, so an interrupted removal can be repeated.

    Raises:
        UserError: there is no such run, or a process works on it.
    """
    folders = run_folders(root, name)
    if not folders:
        read_record(root, name)
    try:
        record = read_record(root, name)
        running = current_state(root, record) == "running"
    except UserError:
        running = False  # a broken record, or folders without one, are what this is for
    if running:
        raise UserError(
            f"run {name!r} is being worked on by process {record.pid} on {record.host}{_sign_of_life(root, record)}; "
            "stop that process before removing the run"
        )
    for folder in folders:
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)


def open_run(name: str, root: Path | str | None = None) -> Run:
    """Open a run's tables as pandas frames.

    Args:
        name: the run's name; ``starpo runs list`` shows them.
        root: the project's folder; None: the nearest folder upwards that holds ``data/00_runs``.

    Example: ``open_run("train_starpo_s-sokoban-seed0").metrics()``.
    """
    # pandas and pyarrow take a second to import, which the training's hook need not wait for.
    from starpo.store.run_tables import Run  # noqa: PLC0415

    place = find_root() if root is None else Path(root)
    return Run(place, read_record(place, name))


def find_root(start: Path | None = None) -> Path:
    """The nearest folder upwards from ``start`` (the working directory) that holds runs, else ``start``."""
    here = (start or Path.cwd()).resolve()
    return next(
        (place for place in (here, *here.parents) if layer_folder(place, Layer.RECORDS).is_dir()), here
    )


def check_name(name: str) -> str:
    """The name itself, if it can be a folder's in every layer."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"run name {name!r}: use at most 200 letters, digits, '_', '.' and '-', starting with a letter or digit"
        )
    return name


def _sign_of_life(root: Path, record: RunRecord) -> str:
    """What to add about a process that this machine cannot see."""
    if record.host == socket.gethostname():
        return ""
    silent = silent_seconds(RunPaths(root, record.name).lease) or 0.0
    return (
        f", which gave its last sign of life {silent:.0f} s ago; if that machine is gone, the same command works "
        f"{SILENT_SECONDS:.0f} s after the last one"
    )


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    # Through JSON and back, so that a tuple equals the list that was read from the record.
    return json.loads(json.dumps(parameters, default=str))


def _process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "process_start": _process_start(os.getpid())}


def _process_start(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    # Field 22; the second one, the command, may hold spaces and parentheses.
    return int(stat.rpartition(")")[2].split()[19])
