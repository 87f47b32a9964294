"""The MLflow Model Registry: which policy of an environment is the candidate and which the champion.

The registered model is called ``starpo-<environment>``, that of ``lakes:Frozen`` is ``starpo-lakes-Frozen``.
``candidate`` is the last policy of the newest finished training; ``champion`` is the one that the scheduled evaluation
has promoted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starpo.errors import UserError
from starpo.store.layout import in_names

if TYPE_CHECKING:
    from mlflow import MlflowClient

CANDIDATE = "candidate"
CHAMPION = "champion"
_PREFIX = "starpo-"
_FINISHED = "finished"
"""Tag of a version: when its training ended, unix ms."""


@dataclass(frozen=True)
class RegisteredPolicy:
    """A version of a registered model."""

    environment: str
    """What it was trained on."""
    version: str
    """MLflow's version number."""
    directory: Path
    """Hugging Face folder with ``harness.json``, inside MLflow's artefact store."""
    run: str
    """Run that trained it."""
    iteration: int
    """Iterations behind it."""


def register(
    client: MlflowClient,
    *,
    environment: str,
    model_id: str,
    run_id: str,
    run: str,
    iteration: int,
    finished: int,
) -> str:
    """A version for a logged model, the existing one if there is one; returns the version."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415

    name = _model(environment)
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name, description=f"StarPO policies for {environment}")
    for known in client.search_model_versions(f"name = '{name}'"):
        if known.tags.get("model_id") == model_id:
            return str(known.version)
    model = client.get_logged_model(model_id)
    tags = {"model_id": model_id, "run": run, "iteration": str(iteration), _FINISHED: str(finished)}
    version = client.create_model_version(
        name, source=model.artifact_location, run_id=run_id, model_id=model_id, tags=tags
    )
    return str(version.version)


def version_of(client: MlflowClient, environment: str, run: str, iteration: int) -> str | None:
    """The registered version of a run's policy; None if it was never registered."""
    for known in client.search_model_versions(f"name = '{_model(environment)}'"):
        if (known.tags.get("run"), known.tags.get("iteration")) == (run, str(iteration)):
            return str(known.version)
    return None


def set_alias(client: MlflowClient, environment: str, alias: str, version: str) -> None:
    """Let ``alias`` name ``version``; the version that had it loses it."""
    client.set_registered_model_alias(_model(environment), alias, version)


def offer_candidate(client: MlflowClient, environment: str, version: str, finished: int) -> None:
    """Make ``version`` the candidate, unless the present one's training ended later than ``finished`` (unix ms)."""
    name = _model(environment)
    if CANDIDATE in client.get_registered_model(name).aliases:
        present = client.get_model_version_by_alias(name, CANDIDATE)
        if int(present.tags.get(_FINISHED, 0)) > finished:
            return
    set_alias(client, environment, CANDIDATE, version)


def find(client: MlflowClient, alias: str, environment: str | None = None) -> RegisteredPolicy:
    """The policy that ``alias`` names.

    Raises:
        UserError: no such policy, or several environments have one and none was named.
    """
    names = [model.name for model in client.search_registered_models() if alias in model.aliases]
    known = sorted(name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
    if environment is None and len(known) == 1:
        environment = known[0]
    if environment is None or in_names(environment) not in known:
        if not known:
            remedy = (
                "name one: starpo champion set RUN@ITERATION"
                if alias == CHAMPION
                else "finish a training: make train"
            )
            raise UserError(f"no policy is registered as {alias!r}; {remedy}")
        wanted = f"for environment {environment!r}" if environment else "without a named environment"
        raise UserError(f"no {alias!r} {wanted}; there is one for: {', '.join(known)}")
    version = client.get_model_version_by_alias(_model(environment), alias)
    return _policy(environment, version)


def _model(environment: str) -> str:
    return _PREFIX + in_names(environment)


def _policy(environment: str, version: Any) -> RegisteredPolicy:
    from mlflow import artifacts  # noqa: PLC0415

    directory = Path(artifacts.download_artifacts(artifact_uri=version.source))
    return RegisteredPolicy(
        environment=environment,
        version=str(version.version),
        directory=directory,
        run=version.tags.get("run", ""),
        iteration=int(version.tags.get("iteration", 0)),
    )
