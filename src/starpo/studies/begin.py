"""Before a cell trains: go on with an unfinished run of the same code and configuration, else start from nothing.

DVC keeps the outs of a killed stage (``persist``), so that training can go on inside a cell; but it also keeps them
when code or parameters have changed, and a finished run has nothing left to do: its old tables would be recorded as
made by the new code. So the cell's run carries a hash of what it was made with.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from starpo.config.kedro_command import check_env
from starpo.store.layout import RunPaths
from starpo.store.runs import current_state, read_record, remove_run, run_folders

KEY = "made_with.sha256"
"""File in the run's ``data/00_runs`` folder."""

TRAINED_BY = (
    "src/starpo/agent",
    "src/starpo/algorithms",
    "src/starpo/app/parameters.py",
    "src/starpo/base_policy",
    "src/starpo/config",
    "src/starpo/environments",
    "src/starpo/evaluation",
    "src/starpo/gates",
    "src/starpo/learning",
    "src/starpo/monitor/echo_trap.py",
    "src/starpo/monitor/iteration_metrics.py",
    "src/starpo/rewards",
    "src/starpo/rollout",
    "src/starpo/scoring",
    "src/starpo/seeds.py",
    "src/starpo/store",
    "pipelines/training.py",
    "pipelines/base_policy",
    "pipelines/evaluate",
    "pipelines/reward",
    "pipelines/rollout",
    "pipelines/update",
)
"""What a run's numbers come from, as files and folders; the stages in ``studies/*/dvc.yaml`` depend on the same."""


def begin(root: Path, run: str, env: str) -> str:
    """Remove what is left of ``run`` unless it can go on, and write the key of a new one.

    A finished run goes as well: DVC runs a finished cell again only where something changed or by ``--force``.

    Args:
        root: the project's folder.
        run: name of the cell's run.
        env: its Kedro environment, a folder of ``conf/``.

    Returns:
        What was decided, for people.

    Raises:
        UserError: there is no such environment, or a process works on the run.
    """
    check_env(env, root / "conf")
    key, file = key_of(root, env), RunPaths(root, run).record.with_name(KEY)
    had = bool(run_folders(root, run))
    if had and file.exists() and file.read_text(encoding="utf-8") == key and _unfinished(root, run):
        return f"{run}: goes on where it stopped"
    if had:
        remove_run(root, run)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(key, encoding="utf-8")
    return f"{run}: starts from nothing" + (", the old one is removed" if had else "")


def key_of(root: Path, env: str) -> str:
    """SHA-256 over names and contents of ``TRAINED_BY`` and of the configuration's files, byte code left out."""
    digest = hashlib.sha256()
    for name in (*TRAINED_BY, "conf/base", f"conf/{env}"):
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
    return current_state(read_record(root, run)) in {"running", "interrupted", "killed", "failed"}
