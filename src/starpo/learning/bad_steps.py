"""Optimizer steps that were not taken, because a loss or the gradient is not a finite number: why, and how many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from starpo.algorithms.finite import LARGEST, all_usable, worst
from starpo.errors import UserError

Key = tuple[int, int]
"""(group, member) of a trajectory."""

NAMED = 3
"""Trajectories that a message names."""


def checked_estimate(what: str, values: Tensor, mask: Tensor, keys: Sequence[Key], iteration: int) -> Tensor:
    """``values``, float [N, T], which ``what`` gave for tokens inside ``mask``, bool [N, T].

    Raises ``UserError`` naming the trajectories in which one of them is NaN, infinite or above ``LARGEST``.
    """
    inside = torch.where(mask, values, 0)
    if not all_usable([inside]):
        rows = (~(inside.abs() <= LARGEST)).any(1).nonzero()[:, 0].tolist()
        raise UserError(
            f"iteration {iteration}: {what} gave {worst(inside):g} for {trajectories([keys[row] for row in rows])}; "
            f"it must be finite and at most {LARGEST:g} in magnitude. No step was taken: mend the function, and give "
            "the same command again"
        )
    return values


def trajectories(keys: Sequence[Key]) -> str:
    """``[(0, 1), (2, 0)]`` to ``2 trajectories (group 0, member 1; group 2, member 0)``."""
    shown = "; ".join(f"group {group}, member {member}" for group, member in keys[:NAMED])
    count = "1 trajectory" if len(keys) == 1 else f"{len(keys)} trajectories"
    return f"{count} ({shown}{'; …' if len(keys) > NAMED else ''})"


def cause_of(terms: Mapping[str, Tensor], mask: Tensor, keys: Sequence[Key]) -> str:
    """Which term of a loss that is not finite is to blame, and in which trajectories.

    Args:
        terms: float [B, T] each, per token, in the order in which they are suspected.
        mask: bool [B, T].
        keys: of the rows.
    """
    inside = {name: torch.where(mask, term.detach(), 0) for name, term in terms.items()}
    # Where every token's is finite, it is their sum that is not.
    name = next(
        (name for name, term in inside.items() if not bool(term.isfinite().all())),
        max(inside, key=lambda name: float(inside[name].abs().max())),
    )
    largest = inside[name].abs().nan_to_num(torch.inf, torch.inf).amax(1)
    rows = (largest == largest.max()).nonzero()[:, 0].tolist()
    return f"{name} of up to {worst(inside[name]):g} in {trajectories([keys[row] for row in rows])}"


class BadSteps:
    """Counts them for the iteration and in a row; too many in a row end the run.

    A row goes on in the next iteration, and after a resume: it is among the learner's counters.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._row: dict[str, int] = {}
        self._first: dict[str, str] = {}
        self._count, self._cause = 0, ""

    def restore(self, counters: Mapping[str, float]) -> None:
        """Take over the rows of a stored learner state."""
        self._row = {
            name.removesuffix(_COUNTER): int(count)
            for name, count in counters.items()
            if name.endswith(_COUNTER)
        }
        self._first = dict.fromkeys(self._row, "before this start of the run; its metrics say why")

    def counters(self) -> dict[str, float]:
        """What a learner state must hold; empty where the last steps were taken."""
        return {f"{network}{_COUNTER}": count for network, count in self._row.items() if count}

    def begin_iteration(self) -> None:
        """Count from 0."""
        self._count, self._cause = 0, ""

    def metrics(self) -> dict[str, float | str]:
        """Of the iteration: ``bad_steps``, and where there are any the first one's ``bad_step_cause``."""
        return {"bad_steps": float(self._count)} | ({"bad_step_cause": self._cause} if self._count else {})

    def note(self, network: str, cause: str, norm: float, keys: Sequence[Key], iteration: int) -> bool:
        """Whether a step was taken, after it was tried.

        Args:
            network: ``actor`` or ``critic``.
            cause: what was wrong with the losses; empty: nothing.
            norm: global norm of the gradient, not finite where the step was not taken.
            keys: of the step's trajectories.
            iteration: present one.

        Raises:
            UserError: it is the ``most``-th in a row that was not; names the first one's cause.
        """
        if math.isfinite(norm):
            self._row.pop(network, None)
            return True
        cause = cause or f"gradient norm {norm:g} over {trajectories(keys)}"
        self._count += 1
        self._cause = self._cause or f"{network}: {cause}"
        row = self._row[network] = self._row.get(network, 0) + 1
        if row == 1:
            self._first[network] = f"in iteration {iteration}: {cause}"
        if row >= self._most:
            raise UserError(
                f"iteration {iteration}: the last {row} optimizer steps of the {network} were not taken "
                f"(learner.max_bad_steps = {self._most}), the first {self._first[network]}. The policy of iteration "
                f"{iteration} stands as it was: mend what gave this number, lower learner.{network}.learning_rate in a "
                "fork (run.fork_from), or raise learner.max_bad_steps and give the same command again"
            )
        return False


_COUNTER = "_bad_steps"
