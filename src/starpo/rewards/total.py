"""Adding up reward terms: per turn for the estimators, per trajectory for filters and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from starpo.plugins import bind
from starpo.rewards.terms import TERMS, Reward, Term, Turns


def bind_terms(parameters: Mapping[str, Mapping[str, Any]]) -> dict[str, Term]:
    """Look up terms by name or ``module:function`` and fix their parameters, once per run.

    Args:
        parameters: term -> its keyword arguments, in the order the terms are to be listed.

    Returns:
        term -> ``f(turns) -> float [K]``.

    Raises:
        UserError: unknown term or parameter; the message lists the known ones.

    Example: ``bind_terms({"environment": {}, "format_penalty": {"penalty": 0.1}})``.
    """
    return {name: bind("reward term", name, TERMS, arguments) for name, arguments in parameters.items()}


def score(turns: Turns, terms: Mapping[str, Term]) -> dict[str, Reward]:
    """Every term's vector for one trajectory: term -> float64 [K].

    Raises:
        ValueError: a term gave another shape than [K] or a value that is not finite.
    """
    scored = {}
    for name, term in terms.items():
        reward = np.asarray(term(turns), dtype=np.float64)
        if reward.shape != (len(turns),):
            raise ValueError(
                f"reward term {name!r} must give one value per turn ({len(turns)},), got {reward.shape}"
            )
        if not np.isfinite(reward).all():
            turn = int(np.flatnonzero(~np.isfinite(reward))[0])
            raise ValueError(
                f"reward term {name!r} gave {reward[turn]} for turn {turn}; rewards must be finite"
            )
        scored[name] = reward
    return scored


def turn_rewards(scored: Mapping[str, Reward], turns: int) -> Reward:
    """Sum of all terms per turn: float64 [turns]; zeros if there is no term."""
    return np.sum([np.zeros(turns), *scored.values()], axis=0)


def trajectory_return(scored: Mapping[str, Reward]) -> float:
    """Sum of all terms over all turns, undiscounted; 0 without turns.

    Example: ``{"environment": [0, 1], "format_penalty": [-0.1, 0]}`` gives 0.9.
    """
    return float(sum(float(reward.sum()) for reward in scored.values()))
