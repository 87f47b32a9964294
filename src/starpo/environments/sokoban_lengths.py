"""How long a Sokoban room's shortest solution shall be: each length as likely, or as often as in RAGEN's rooms."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

#: Optimal lengths of 500 rooms that RAGEN's generator drew from the seeds 0 to 499, found by breadth-first search
#: over (player, boxes): rooms by number of moves, for (rows, columns, boxes). 6x6 was drawn with search depth
#: 300, 8x8 with 10, as the paper's SimpleSokoban and LargerSokoban are. None was unsolvable or solved.
RAGEN_LENGTHS: Final[Mapping[tuple[int, int, int], Mapping[int, int]]] = MappingProxyType(
    {
        (6, 6, 1): {1: 46, 2: 120, 3: 55, 4: 79, 5: 77, 6: 59, 7: 24, 8: 23, 9: 10, 10: 6, 11: 1},
        (8, 8, 2): {2: 13, 3: 31, 4: 81, 5: 98, 6: 108, 7: 83, 8: 47, 9: 22, 10: 11, 11: 6},
    }
)
LAWS: Final = ("uniform", "ragen")


def length_weights(
    law: str, *, rows: int, columns: int, num_boxes: int, shortest: int, longest: int
) -> dict[int, int]:
    """Relative frequencies of the optimal lengths ``shortest`` to ``longest`` under ``law``.

    No box starts on a target, so lengths below ``num_boxes`` do not exist. Raises ``ValueError`` where RAGEN's
    rooms have no such shape or no such length.

    >>> length_weights("uniform", rows=6, columns=6, num_boxes=2, shortest=1, longest=4)
    {2: 1, 3: 1, 4: 1}
    """
    if not isinstance(law, str) or law not in LAWS:
        raise ValueError(f"Sokoban: lengths is {law!r}, allowed: {', '.join(LAWS)}")
    allowed = range(max(shortest, num_boxes), longest + 1)
    if law == "uniform":
        return dict.fromkeys(allowed, 1)
    measured = RAGEN_LENGTHS.get((rows, columns, num_boxes))
    if measured is None:
        shapes = ", ".join(f"{shape[0]}x{shape[1]} with {shape[2]}" for shape in RAGEN_LENGTHS)
        raise ValueError(
            f"Sokoban: lengths='ragen' was measured for {shapes} box(es), not for {rows}x{columns} with "
            f"{num_boxes}; use lengths='uniform' with min_optimal and max_optimal"
        )
    weights = {length: measured[length] for length in allowed if length in measured}
    if not weights:
        raise ValueError(
            f"Sokoban: no room of RAGEN's needs {shortest} to {longest} moves, they need {min(measured)} to "
            f"{max(measured)}; widen min_optimal and max_optimal or use lengths='uniform'"
        )
    return weights


def draw_length(instance: np.random.Generator, weights: Mapping[int, int]) -> int:
    """A key of ``weights``, each as likely as its weight; one generator call."""
    mark = int(instance.integers(sum(weights.values())))
    for length, weight in weights.items():
        mark -= weight
        if mark < 0:
            return length
    raise AssertionError("the mark lies below the weights' sum")
