"""Made-up cells of a study."""

from __future__ import annotations

from typing import Any

import numpy as np

from starpo.evaluation.outcomes import Outcomes
from starpo.studies.cells import Cell, CellOutcomes, Rate

SUITE = "test-t1_0"


def outcomes(solved: Any, start: str = "same") -> Outcomes:
    """Outcomes of prompts that are solved where ``solved`` is true."""
    bits = np.asarray(solved, dtype=bool)
    return Outcomes(
        prompts=len(bits),
        success=float(bits.mean()),
        solved=np.packbits(bits).tobytes().hex(),
        start=start,
    )


def cell(
    algorithm: str = "starpo_ppo",
    seed: int = 0,
    *,
    task: str = "lake",
    alarm: int | None = None,
    leads: dict[str, int | None] | None = None,
    before: Any = (0, 0, 0, 0),
    after: Any = (1, 0, 1, 0),
    start: str = "same",
) -> tuple[Cell, CellOutcomes]:
    first, last = outcomes(before, start), outcomes(after, start)
    summary = Cell(
        task=task,
        algorithm=algorithm,
        seed=seed,
        iterations=60,
        success={SUITE: Rate(before=first.success, after=last.success, low=0.0, high=1.0)},
        best=0.5,
        best_iteration=30,
        alarm=alarm,
        success_fell=None if not leads else 20,
        lead_times=leads or {},
        rollout_tokens=1000,
        trained_tokens=2000,
    )
    return summary, CellOutcomes(before={SUITE: first}, after={SUITE: last})
