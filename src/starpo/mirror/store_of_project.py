"""MLflow's store of a project, for commands that run without Kedro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from starpo.errors import UserError
from starpo.mirror.config import MlflowConfig, parse_mlflow_config
from starpo.mirror.store import Store, open_store


def project_config(root: Path, env: str | None = None) -> MlflowConfig:
    """``conf/base/mlflow.yml`` and over it that of a Kedro environment, as a run with ``--env`` has it.

    Args:
        root: the project.
        env: Kedro environment; None: ``conf/local``.

    Raises:
        UserError: a file cannot be read, or holds mistakes.
    """
    raw: dict[str, Any] = {}
    for folder in ("base", env or "local"):
        file = root / "conf" / folder / "mlflow.yml"
        try:
            raw |= yaml.safe_load(file.read_text(encoding="utf-8")) or {} if file.exists() else {}
        except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
            # The parser quotes lines, which may hold a password.
            raise UserError(f"{file}: not readable as YAML ({type(error).__name__}); correct it") from None
    return parse_mlflow_config(raw)


def project_store(root: Path) -> Store:
    """The store that commands without a Kedro environment use.

    Raises:
        UserError: it cannot be opened, or ``mlflow.yml`` holds mistakes.
    """
    return open_store(root, project_config(root))
