"""Checksums of what a run has written: ``data/00_runs/<run>/files.jsonl``, a line per file.

A line is written before its file has its name, so a process killed in between leaves a line without a file. Where a
file is written again, both its contents are known for that moment; one that is neither was changed afterwards. A
policy's manifest holds the checksums of the files beside it, so that they go with the folder.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from starpo.errors import UserError
from starpo.store.durable import append_line
from starpo.store.layout import Address, RunPaths

Fault = Literal["missing", "damaged"]


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record(path: Path, written: Path) -> None:
    """Say in the record of the run whose file ``path`` will be what is in ``written``.

    A path outside any run's folders has no record.
    """
    paths = _run_of(path)
    if paths is not None:
        _add(paths, path, {"bytes": written.stat().st_size, "sha256": checksum(written)})


def record_lost(path: Path) -> None:
    """Say in the run's record that the file is gone for good and the run goes on without it."""
    paths = _run_of(path)
    if paths is None:
        raise ValueError(f"{path}: in no run's folder")
    _add(paths, path, {"lost": True})


def check(path: Path) -> None:
    """Raise ``UserError`` where a file is not what its run recorded; what no record names passes."""
    paths = _run_of(path)
    if paths is None:
        return
    entries = recorded(paths).get(path.relative_to(paths.root).as_posix())
    if entries is not None and _fault(path, entries) is not None:
        raise UserError(damaged(path, paths.run))


def damaged(path: Path, run: str) -> str:
    """The sentence for a file of a run that is not what was written."""
    return (
        f"{path} is not what the run wrote (size or checksum differ). `starpo runs verify {run}` says what can be made "
        "again."
    )


@dataclass(frozen=True)
class Entry:
    """One line about a file."""

    size: int | None
    """Bytes; None: lost."""
    sha256: str | None
    """In hex; None: lost."""


def recorded(paths: RunPaths) -> dict[str, list[Entry]]:
    """What the run's record says of each file, by path from the project's folder, oldest line first.

    A line that a power cut broke off is passed over: its file has no name yet.
    """
    entries: dict[str, list[Entry]] = {}
    if not paths.files.exists():
        return entries
    for line in paths.files.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            raw = json.loads(line)
            entry = Entry(raw.get("bytes"), raw.get("sha256"))
            entries.setdefault(raw["path"], []).append(entry)
        except (ValueError, KeyError, AttributeError):
            continue
    return entries


def is_lost(path: Path) -> bool:
    """Whether the run goes on without this file."""
    paths = _run_of(path)
    if paths is None:
        return False
    entries = recorded(paths).get(path.relative_to(paths.root).as_posix(), [])
    return bool(entries) and entries[-1].sha256 is None


def lost_files(paths: RunPaths) -> list[str]:
    """Files that the run goes on without, by path from the project's folder."""
    return [name for name, entries in recorded(paths).items() if entries[-1].sha256 is None]


def faults(paths: RunPaths) -> dict[Path, Fault]:
    """Every recorded file that is missing or not what was written, in the order of writing; lost ones are known."""
    found: dict[Path, Fault] = {}
    for name, entries in recorded(paths).items():
        if entries[-1].sha256 is None:
            continue
        path = paths.root / name
        if (fault := _fault(path, entries)) is not None:
            found[path] = fault
    return found


def _fault(path: Path, entries: list[Entry]) -> Fault | None:
    if not path.is_file():
        return "missing"
    sizes = {entry.size for entry in entries}
    if path.stat().st_size not in sizes:
        return "damaged"
    return None if checksum(path) in {entry.sha256 for entry in entries} else "damaged"


def _add(paths: RunPaths, path: Path, facts: dict[str, Any]) -> None:
    paths.files.parent.mkdir(parents=True, exist_ok=True)
    name = path.relative_to(paths.root).as_posix()
    append_line(paths.files, json.dumps({"path": name} | facts))


def _run_of(path: Path) -> RunPaths | None:
    try:
        return Address.parse(path).paths
    except ValueError:
        return None
