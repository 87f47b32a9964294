"""``kedro run`` as people write it: environments by name, and commands that messages tell to give."""

from __future__ import annotations

from pathlib import Path

from starpo.errors import UserError


def kedro_run(pipeline: str, env: str | None) -> str:
    """The command that runs ``pipeline`` under the Kedro environment ``env``; None: the base configuration.

    >>> kedro_run("evaluate", "smoke")
    'kedro run --env=smoke --pipeline=evaluate'
    """
    return " ".join(["kedro run", *([f"--env={env}"] if env else []), f"--pipeline={pipeline}"])


def check_env(env: str, conf: Path) -> None:
    """Raise ``UserError`` unless the Kedro environment ``env`` is a folder of ``conf``."""
    known = sorted(path.name for path in conf.iterdir() if path.is_dir())
    if env not in known:
        others = ", ".join(name for name in known if name != "base")
        raise UserError(f"--env={env}: there is no folder {conf / env}; known: {others}")
