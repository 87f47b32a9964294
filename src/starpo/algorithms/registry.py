"""The estimators and policy losses by name; a user's own come as ``module:function``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starpo.algorithms import estimators, policy_loss
from starpo.algorithms.needs import Needs, needs_of
from starpo.plugins import bind, resolve

ESTIMATORS: Mapping[str, estimators.Estimator] = {
    "gae": estimators.gae,
    "bilevel_gae": estimators.bilevel_gae,
    "grpo": estimators.grpo,
    "dr_grpo": estimators.dr_grpo,
    "rloo": estimators.rloo,
    "reinforce_plus_plus": estimators.reinforce_plus_plus,
    "reinforce_plus_plus_baseline": estimators.reinforce_plus_plus_baseline,
    "gigpo": estimators.gigpo,
}
"""Advantage estimators: ``f(batch: AdvantageBatch, **parameters) -> Advantages``."""

POLICY_LOSSES: Mapping[str, Callable[..., policy_loss.PolicyLoss]] = {
    "ppo": policy_loss.ppo_loss,
    "gspo": policy_loss.gspo_loss,
}
"""Policy losses: ``f(logp, old_logp, advantages, mask, **parameters) -> PolicyLoss``."""

PER_TOKEN = frozenset({"ppo"})
"""Policy losses of a token that depend on that token alone, so that a trajectory may come in several parts."""


def advantage_estimator(name: str, **parameters: Any) -> estimators.Estimator:
    """An advantage estimator with its parameters fixed: ``f(batch) -> Advantages``.

    Errors as :func:`bind`.
    """
    return bind("advantage estimator", name, ESTIMATORS, parameters)


def estimator_needs(name: str) -> Needs:
    """What the estimator ``name`` declares to need. Errors as :func:`starpo.plugins.resolve`."""
    return needs_of(resolve("advantage estimator", name, ESTIMATORS))


def policy_loss_function(name: str, **parameters: Any) -> Callable[..., policy_loss.PolicyLoss]:
    """A policy loss with its parameters fixed: ``f(logp, old_logp, advantages, mask) -> PolicyLoss``.

    Errors as :func:`bind`.
    """
    return bind("policy loss", name, POLICY_LOSSES, parameters)
