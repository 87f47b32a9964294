"""MLflow's store of a project, for commands that run without Kedro."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from starpo.mirror.config import parse_mlflow_config
from starpo.mirror.store import open_store

if TYPE_CHECKING:
    from mlflow import MlflowClient


def project_store(root: Path) -> tuple[MlflowClient, str]:
    """Client and id of the experiment, as ``conf/base/mlflow.yml`` says."""
    raw = yaml.safe_load((root / "conf" / "base" / "mlflow.yml").read_text(encoding="utf-8"))
    return open_store(root, parse_mlflow_config(raw or {}))
