"""What is checked before any work: plug-ins by name, environment arguments, and a state to resume from."""

from __future__ import annotations

import logging
from pathlib import Path

from starpo.algorithms.registry import advantage_estimator, policy_loss_function
from starpo.config import EnvironmentConfig
from starpo.environments.registry import make
from starpo.errors import UserError
from starpo.learning.deepspeed_engine import learner_device
from starpo.learning.policy import MANIFEST, Policy
from starpo.parameters import Resolved
from starpo.rewards.total import bind_terms
from starpo.rollout.vllm_engine import on_gpu
from starpo.run_paths import MODELS

logger = logging.getLogger(__name__)


def check_before_work(root: Path, resolved: Resolved) -> None:
    """Raise ``UserError`` for what would only fail in the middle of a run."""
    parameters = resolved.parameters
    algorithm = parameters.algorithm
    advantage_estimator(algorithm.estimator, **algorithm.estimator_parameters)
    policy_loss_function(algorithm.policy_loss, **algorithm.policy_loss_parameters)
    bind_terms(parameters.reward.terms)
    on_gpu(parameters.engine)
    learner_device(parameters.learner)
    _check_environment("environment", parameters.environment)
    for name in parameters.evaluation.suites:
        task = parameters.evaluation.task(name, parameters.environment)
        _check_environment(f"evaluation.suites.{name}", task)
    base = parameters.base_policy.path
    if base is not None and not (Path(base) / "config.json").exists():
        raise UserError(
            f"base_policy.path = {base!r}: no Hugging Face model there (config.json is missing); "
            "give a local model directory, or null for the embedded policy"
        )
    if resolved.fork is not None:
        _ = Policy.open(
            root / MODELS / resolved.fork.run / f"policy_{resolved.fork.iteration:04d}"
        ).model_directory
    rewind(root / MODELS / resolved.names["name"])


def _check_environment(key: str, config: EnvironmentConfig) -> None:
    try:
        make(config.name, **config.arguments)
    except (ValueError, TypeError) as error:
        raise UserError(f"{key}: {error}") from None


def rewind(models: Path) -> None:
    """Make an interrupted run resumable: forget policies after the newest complete learner state.

    Their iterations are recomputed from stored rollouts. Raises ``UserError`` if no complete state is left.
    """
    policies = [Policy.open(path) for path in sorted(models.glob("policy_*")) if (path / MANIFEST).exists()]
    if not policies or policies[-1].is_complete or policies[-1].manifest["status"] == "imported":
        _check_readable(policies[-1:])
        return
    complete = [
        policy for policy in policies if policy.is_complete or policy.manifest["status"] == "imported"
    ]
    if not complete:
        raise UserError(
            f"{models}: no complete learner state is left to go on from; remove the run with "
            f"`starpo runs rm {models.name}`"
        )
    for policy in policies[policies.index(complete[-1]) + 1 :]:
        logger.warning(
            "going back to %s: %s holds no learner state", complete[-1].identity, policy.directory.name
        )
        (policy.directory / MANIFEST).unlink()
    _check_readable(complete[-1:])


def _check_readable(policies: list[Policy]) -> None:
    for policy in policies:
        for part in ("weights", "actor_moments", "critic", "critic_moments"):
            policy.tensors(part)
