"""Re-scoring: what another reward or filter would have made of a whole run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from starpo.scoring.rescoring import compare_scores


def compare_scorings(**tables: pa.Table) -> dict[str, Any]:
    """``before_0000``, ``after_0000`` and so on: one comparison per iteration, in order."""
    numbers = sorted((name.removeprefix("before_") for name in tables if name.startswith("before_")), key=int)
    rows = [
        {"iteration": int(number)} | compare_scores(tables[f"before_{number}"], tables[f"after_{number}"])
        for number in numbers
    ]
    return {"iterations": rows}
