"""The parameters of the MLflow mirror: ``conf/base/mlflow.yml``, in the shape kedro-mlflow made common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from starpo.errors import UserError

_SQLITE = "sqlite:///"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerConfig(_Section):
    """Where runs are kept."""

    mlflow_tracking_uri: str = "sqlite:///mlflow.db"
    """Database or server; a relative SQLite path is relative to the project. MLflow refuses plain folders."""


class ExperimentConfig(_Section):
    """The experiment all runs go to."""

    name: str = "starpo"
    """Created if it does not exist."""


class RunNameConfig(_Section):
    """How a run is called in MLflow."""

    name: str | None = None
    """null: the run's own name."""


class DisableConfig(_Section):
    """What is not mirrored."""

    pipelines: list[str] = Field(default_factory=list)
    """Pipelines without an MLflow run."""


class TrackingConfig(_Section):
    """What is written."""

    experiment: ExperimentConfig = ExperimentConfig()
    run: RunNameConfig = RunNameConfig()
    disable_tracking: DisableConfig = DisableConfig()
    trace_share: float = Field(default=0.01, ge=0, le=1)
    """Share of each evaluation's trajectories that become traces, at least one; 0: none. One costs about 0.2 s."""
    system_metrics_seconds: float | None = Field(default=30.0, gt=0)
    """Interval of MLflow's system metrics (processor, memory, disk, and GPU load and power); null: none."""


class MlflowConfig(_Section):
    """All of ``mlflow.yml``."""

    server: ServerConfig = ServerConfig()
    tracking: TrackingConfig = TrackingConfig()

    def tracking_uri(self, root: Path) -> str:
        """The URI; a relative SQLite path is made absolute, so that the working directory does not matter."""
        uri = self.server.mlflow_tracking_uri
        if not uri.startswith(_SQLITE) or uri.startswith(_SQLITE + "/"):
            return uri
        return f"{_SQLITE}{root.resolve() / uri.removeprefix(_SQLITE)}"


def parse_mlflow_config(raw: dict[str, Any]) -> MlflowConfig:
    """Validate the content of ``mlflow.yml``.

    Raises:
        UserError: one line per mistake.
    """
    try:
        return MlflowConfig.model_validate(raw)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
        raise UserError("invalid mlflow.yml:\n" + "\n".join(lines) + "\nCorrect conf/*/mlflow.yml.") from None
