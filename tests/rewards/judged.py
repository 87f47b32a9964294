"""Builders of trajectories as reward terms see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starpo.environments.registry import make
from starpo.rewards.bind import bind_terms
from starpo.rewards.total import Reward, score
from starpo.rewards.trajectory import States, Trajectory, Turn

SHUT = "P_O\n__O\n_OG"
"""A lake whose goal no way leads to; the player is in the upper left corner."""
OPEN = "P_O\n___\n_OG"
"""The same with a way of four moves."""
KNOWN = States(
    {
        "frozen_lake": lambda: make("frozen_lake", size=3, slippery=False),
        "bandit": lambda: make("bandit"),
        "sokoban": lambda: make("sokoban"),
        "blind": lambda: None,
    }
)


def turn(**fields: Any) -> Turn:
    """A turn on the open lake."""
    return Turn(**{"observation": OPEN, "environment": "frozen_lake", "states": KNOWN} | fields)


def trajectory(*turns: Turn, **fields: Any) -> Trajectory:
    return Trajectory(turns=turns, **fields)


def values(name: str, judged: Trajectory, *group: Trajectory, **parameters: Any) -> list[float]:
    """What one term says."""
    return scored({name: parameters}, judged, *group)[name].tolist()


def scored(
    terms: Mapping[str, dict[str, Any]], judged: Trajectory, *group: Trajectory
) -> Mapping[str, Reward]:
    return score(judged, group, bind_terms(terms)).values
