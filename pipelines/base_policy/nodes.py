"""Where a run's first policy comes from."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from starpo.base_policy.warm_start import build_base_policy, harness_of, warm_start_pretrained
from starpo.config.agent import AgentConfig
from starpo.config.base_policy import BasePolicyConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.run import RunConfig
from starpo.learning.lora import frozen_base
from starpo.rollout.vllm_engine import stored_weights
from starpo.store.layout import base_policy_run, policy_name
from starpo.store.model_files import ModelFiles
from starpo.store.policies import STATE_FILES, Policy, PolicyState

logger = logging.getLogger(__name__)


def make_base_policy(
    base_policy: BasePolicyConfig, environment: EnvironmentConfig, agent: AgentConfig
) -> PolicyState:
    """Build the embedded policy or take the pretrained model at ``base_policy.path``; then the warm start."""
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
    return PolicyState(
        run=name,
        iteration=0,
        policy_step=0,
        status="imported",
        counters={"actor_steps": 0, "critic_steps": 0, "skipped": 0},
        model_files=files,
        harness=harness_of(environment, agent),
        weights=weights,
        weights_in=policy_name(0),
    )


def _tell(fit: dict[str, float]) -> None:
    logger.info("base policy: %s", ", ".join(f"{key} {value:.4g}" for key, value in fit.items()))


def import_policy(source: Policy, run: RunConfig) -> PolicyState:
    """The run's own copy of its first policy, with the learner state where the source has one (a fork).

    The source of a fork may be removed later, so an adapter's frozen base is copied too.
    """
    parts = {part: source.tensors(part) for part in STATE_FILES}
    adapter = source.adapter()
    return PolicyState(
        run=str(run.name),
        iteration=0,
        policy_step=0,
        status="imported",
        counters=source.counters | {"skipped": 0},
        model_files=source.model_directory,
        harness=source.harness(),
        weights=source.tensors("weights"),
        weights_in=policy_name(0),
        parts={part: tensors for part, tensors in parts.items() if tensors is not None},
        adapter=adapter,
        base=frozen_base(source) if adapter is not None else None,
    )
