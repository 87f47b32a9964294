"""Asking terms about a trajectory and adding them up: per turn for the estimators, per trajectory for filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from starpo.errors import UserError
from starpo.rewards.bind import Term
from starpo.rewards.trajectory import Missing, Trajectory

Reward = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """What the terms say of one trajectory of K turns."""

    values: Mapping[str, Reward]
    """Term -> float64 [K], its weight applied."""
    missing: Mapping[str, Mapping[int, str]]
    """Term -> turn -> why it could not be judged, which counts 0; terms that judged all turns are absent."""


def score(
    trajectory: Trajectory,
    group: Sequence[Trajectory],
    terms: Mapping[str, Term],
    *,
    where: str | None = None,
) -> Scores:
    """Every term's vector for one trajectory.

    Args:
        trajectory: what is judged.
        group: the other members of its group.
        terms: see :func:`starpo.rewards.bind.bind_terms`.
        where: how messages call the trajectory; None: by its address.

    Raises:
        UserError: a term raised, gave another number of values than there are turns, or one that is no finite number.
    """
    values: dict[str, Reward] = {}
    missing: dict[str, dict[int, str]] = {}
    for name, term in terms.items():
        place = f"{term.key}, {where or trajectory.address}"
        try:
            given = term.function(trajectory, group)
        except Exception as error:  # may be a user's own
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UserError(f"{place}: it raised {said}; mend it or its parameters and run again") from error
        vector, unjudged = _values(place, given, len(trajectory))
        values[name] = term.weight * vector
        if unjudged:
            missing[name] = unjudged
    return Scores(values, missing)


def _values(place: str, given: Any, turns: int) -> tuple[Reward, dict[int, str]]:
    """The values as float64 [K], and why some are missing."""
    try:
        listed = list(given)
    except TypeError:
        raise UserError(
            f"{place}: it gave {given!r} in place of a list with one value per turn ({turns} here); mend it and run "
            "again"
        ) from None
    if len(listed) != turns:
        raise UserError(
            f"{place}: it gave {len(listed)} values for {turns} turns; give one per turn and run again"
        )
    vector, unjudged = np.zeros(turns), {}
    for number, value in enumerate(listed):
        if isinstance(value, Missing):
            unjudged[number] = value.reason
            continue
        try:
            vector[number] = value
        except (TypeError, ValueError):
            vector[number] = math.nan
        if not math.isfinite(vector[number]):
            raise UserError(
                f"{place}: it gave {value!r} for turn {number}; give a finite number, or Missing(reason), "
                "and run again"
            )
    return vector, unjudged


def turn_rewards(scored: Mapping[str, Reward], turns: int) -> Reward:
    """Sum of all terms per turn: float64 [turns]; zeros if there is no term."""
    return np.sum([np.zeros(turns), *scored.values()], axis=0)


def trajectory_return(scored: Mapping[str, Reward]) -> float:
    """Sum of all terms over all turns, undiscounted; 0 without turns.

    Example: ``{"environment": [0, 1], "format_penalty": [-0.1, 0]}`` gives 0.9.
    """
    return float(sum(float(reward.sum()) for reward in scored.values()))
