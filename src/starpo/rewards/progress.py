"""Progress towards success as potential-based shaping, which leaves the optimal policies as they are.

F = gamma * Phi(s') - Phi(s) with Phi = -distance / scale (Ng, Harada and Russell, ICML 1999). A trajectory's end is an
absorbing state of potential 0 whichever way it ended, so that the discounted sum of F is -Phi of the first state, the
same for all members of a group: nothing is earned by walking in circles, and nothing by stopping early.
"""

from __future__ import annotations

import math

from starpo.rewards.terms import Group
from starpo.rewards.trajectory import Trajectory


def progress(
    trajectory: Trajectory,
    group: Group,
    *,
    gamma: float = 1.0,
    scale: float = 1.0,
    hopeless: float = 100.0,
) -> list[float]:
    """``gamma * Phi(s') - Phi(s)`` per turn, where Phi is minus the solver's distance over ``scale``.

    Args:
        trajectory: what is judged.
        group: not looked at.
        gamma: discount from turn to turn; the estimator's, or the optimal policies are not those of its objective.
        scale: actions that are worth 1.
        hopeless: distance of states from which success is out of reach. A state of which nobody knows has potential 0.

    Raises:
        ValueError: gamma outside [0, 1], or scale or hopeless not above 0.

    Example: distances 3, 2, and the goal: ``[1, 2]``, which is 3, whatever way was taken.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}")
    if scale <= 0 or hopeless <= 0:
        raise ValueError(f"scale ({scale}) and hopeless ({hopeless}) must be above 0")

    def potential(distance: float | None) -> float:
        return 0.0 if distance is None else -(distance if math.isfinite(distance) else hopeless) / scale

    before = [potential(turn.distance) for turn in trajectory.turns]
    # The next turn's own observation, so that the sum telescopes whatever the texts say.
    after = [*before, 0.0][1:]
    return [gamma * later - earlier for earlier, later in zip(before, after, strict=True)]
