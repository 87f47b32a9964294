"""Drawing further groups where the filter leaves too few to learn from."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from starpo.config.reward import ResampleConfig
from starpo.errors import UserError

logger = logging.getLogger(__name__)


def draw_until_enough(
    draw: Callable[[int], pa.Table], judge: Callable[[pa.Table], pa.Table], resample: ResampleConfig | None
) -> pa.Table:
    """The turns of round 0 and of as many further rounds as it takes, all in one table.

    Every round is judged together with those before it, as the reward and filter nodes will judge the whole table,
    so a group that was dropped may be kept after all. Nothing is thrown away: where judging fails there is no further
    round, and the reward node says the same of what was stored.

    Args:
        draw: number of a round -> its turns; group numbers go on from round to round.
        judge: turns -> scored trajectories with ``kept`` and ``reason``.
        resample: how many groups must be kept and how many further rounds there may be; None: round 0 alone.
    """
    turns = draw(0)
    if resample is None:
        return turns
    for number in range(1, resample.max_rounds + 1):
        try:
            scored = judge(turns)
        except UserError as error:  # the turns are stored first, and then judged again
            logger.warning("no re-sampling: %s", error)
            break
        kept = len(pc.unique(scored.filter(scored["kept"])["group"]))
        if kept >= resample.min_kept_groups:
            break
        logger.info(
            "re-sampling, round %d of %d: %d groups kept and %d wanted (%s)",
            number,
            resample.max_rounds,
            kept,
            resample.min_kept_groups,
            _reasons(scored),
        )
        turns = pa.concat_tables([turns, draw(number)]).unify_dictionaries().combine_chunks()
    return turns


def _reasons(scored: pa.Table) -> str:
    """Number of groups by reason, such as ``1 kept, 7 zero_spread``; members that are not quarantined share one."""
    usable = scored.filter(pc.invert(scored["quarantined"]))
    reasons = dict(zip(usable["group"].to_pylist(), usable["reason"].to_pylist(), strict=True))
    return (
        ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(reasons.values()).items()))
        or "no group"
    )


def resampling_metrics(turns: pa.Table, groups: int) -> dict[str, float]:
    """Further rounds and their groups, from the group numbers; ``groups`` is the number per round."""
    rounds = int(pc.max(turns["group"]).as_py() or 0) // groups
    return {"resample_rounds": float(rounds), "resampled_groups": float(rounds * groups)}
