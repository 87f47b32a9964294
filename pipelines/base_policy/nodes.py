"""Where a run's first policy comes from."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from starpo.config.agent import AgentConfig
from starpo.config.base_policy import BasePolicyConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.run import RunConfig
from starpo.store.layout import base_policy_run
from starpo.store.model_files import ModelFiles
from starpo.store.policies import Policy, new_policy
from starpo.store.policy_state import PolicyState

logger = logging.getLogger(__name__)


def make_base_policy(
    base_policy: BasePolicyConfig, environment: EnvironmentConfig, agent: AgentConfig
) -> PolicyState:
    """Build the embedded policy or take the pretrained model at ``base_policy.path``; then the warm start."""
    from starpo.base_policy.warm_start import build_base_policy, harness_of, warm_start_pretrained
    from starpo.rollout.vllm_engine import stored_weights

    name = base_policy_run(base_policy, environment, agent)
    if base_policy.path is None:
        files = Path(tempfile.mkdtemp(prefix="starpo-base-"))
        logger.info("building and warm-starting the embedded base policy (%s)", name)
        weights, fit = build_base_policy(files, environment, agent, base_policy)
        _tell(fit)
    else:
        expanded = Path(tempfile.mkdtemp(prefix="starpo-model-"))
        files = ModelFiles.at(base_policy.path).as_directory(expanded)
        weights = dict(stored_weights(files))
        if base_policy.fit_pretrained:
            logger.info("warm-starting %s (%s)", base_policy.path, name)
            weights, fit = warm_start_pretrained(files, weights, environment, agent, base_policy)
            _tell(fit)
    return new_policy(name, files, harness_of(environment, agent), weights)


def _tell(fit: dict[str, float]) -> None:
    logger.info("base policy: %s", ", ".join(f"{key} {value:.4g}" for key, value in fit.items()))


def import_policy(source: Policy, run: RunConfig) -> PolicyState:
    """The run's own copy of its first policy, with the learner state where the source has one (a fork)."""
    from starpo.learning.lora import frozen_base

    has_adapter = source.adapter_settings() is not None
    return source.imported(str(run.name), frozen_base(source) if has_adapter else None)
