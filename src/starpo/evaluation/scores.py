"""Raw scores: what an environment says a trajectory achieved, beside its reward and whether it succeeded.

WebShop is the example: a purchase scores between 0 and 1, and only a score of 1 is a success.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc


def raw_scores(turns: pa.Table) -> dict[tuple[int, int], float]:
    """(group, member) -> the last number that the ``info`` of its turns calls ``score``.

    A trajectory that no turn gave one, such as one without a legal action, has 0 where others of its environment
    have a score. Environments whose ``info`` never holds one are left out.

    Args:
        turns: a table with the schema ``TURNS``, the turns of a trajectory in order.
    """
    if not pc.any(pc.match_substring(turns["info"], '"score"')).as_py():
        return {}
    names = ("environment", "group", "member", "info")
    rows = list(zip(*(turns[name].to_pylist() for name in names), strict=True))
    scores: dict[tuple[int, int], float] = {}
    scored: set[str] = set()
    for environment, group, member, info in rows:
        score = json.loads(info).get("score")
        if isinstance(score, int | float) and not isinstance(score, bool):
            scores[group, member] = float(score)
            scored.add(environment)
    return {
        (group, member): scores.get((group, member), 0.0)
        for environment, group, member, _ in rows
        if environment in scored
    }
