"""``kedro run`` as people write it: environments by name, and commands that messages tell to give."""

from __future__ import annotations

from pathlib import Path

import yaml

from starpo.errors import UserError

EXTENDS = "_extends"
"""Key of an environment's parameters that names the environment which it changes."""


def kedro_run(pipeline: str, env: str | None) -> str:
    """The command that runs ``pipeline`` under the Kedro environment ``env``; None: the base configuration.

    >>> kedro_run("evaluate", "smoke")
    'kedro run --env=smoke --pipeline=evaluate'
    """
    return " ".join(["kedro run", *([f"--env={env}"] if env else []), f"--pipeline={pipeline}"])


def folders_of(env: str, conf: Path) -> list[str]:
    """The environment's folder in ``conf`` and those that it extends, nearest first."""
    file = conf / env / "parameters.yml"
    parameters = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    extended = parameters.get(EXTENDS) if isinstance(parameters, dict) else None
    return [env, *(folders_of(extended, conf) if extended else [])]


def check_env(env: str, conf: Path) -> None:
    """Raise ``UserError`` unless the Kedro environment ``env`` is a folder of ``conf``."""
    known = sorted(path.name for path in conf.iterdir() if path.is_dir())
    if env not in known:
        others = ", ".join(name for name in known if name != "base")
        raise UserError(f"--env={env}: there is no folder {conf / env}; known: {others}")
