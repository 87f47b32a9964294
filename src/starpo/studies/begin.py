"""Before a cell trains: go on with an unfinished run of the same code and configuration, else start from nothing.

DVC keeps the outs of a killed stage (``persist``), so that training can go on inside a cell; but it also keeps them
when code or parameters have changed, and a finished run has nothing left to do: its old tables would be recorded as
made by the new code. So the cell's run carries a hash of what it was made with.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from starpo.config.kedro_command import check_env, folders_of
from starpo.store.layout import RunPaths
from starpo.store.runs import current_state, read_record, remove_run, run_folders
from starpo.studies.code import listed_code

KEY = "made_with.sha256"
"""File in the run's ``data/00_runs`` folder."""


def begin(root: Path, study: Path, run: str, env: str) -> str:
    """Remove what is left of ``run`` unless it can go on, and write the key of a new one.

    A finished run goes as well: DVC runs a finished cell again only where something changed or by ``--force``.

    Args:
        root: the project's folder.
        study: the study's folder, whose ``dvc.yaml`` lists the code.
        run: name of the cell's run.
        env: its Kedro environment, a folder of ``conf/``.

    Returns:
        What was decided, for people.

    Raises:
        UserError: there is no such environment, or a process works on the run.
    """
    check_env(env, root / "conf")
    key, file = key_of(root, study, env), RunPaths(root, run).record.with_name(KEY)
    had = bool(run_folders(root, run))
    if had and file.exists() and file.read_text(encoding="utf-8") == key and _unfinished(root, run):
        return f"{run}: goes on where it stopped"
    if had:
        remove_run(root, run)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(key, encoding="utf-8")
    return f"{run}: starts from nothing" + (", the old one is removed" if had else "")


def key_of(root: Path, study: Path, env: str) -> str:
    """SHA-256 over names and contents of the code that cells depend on and of the configuration, byte code left out."""
    digest = hashlib.sha256()
    conf = [f"conf/{name}" for name in ("base", *folders_of(env, root / "conf"))]
    for name in (*listed_code(study), *conf):
        place = root / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest() + "\n"


def _unfinished(root: Path, run: str) -> bool:
    """Whether the run never reached its end; one without a record was killed before it began."""
    if not RunPaths(root, run).record.exists():
        return True
    return current_state(root, read_record(root, run)) in {"running", "interrupted", "killed", "failed"}
