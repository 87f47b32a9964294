"""The same trajectories scored twice: what another reward or filter would have made of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from starpo.errors import UserError

_KEYS = ("group", "member")


def compare_scores(before: pa.Table, after: pa.Table) -> dict[str, float | int]:
    """How returns and kept groups differ between two scorings of one iteration.

    Args:
        before: a table with the schema ``SCORED``.
        after: the same trajectories, scored otherwise.

    Returns:
        ``trajectories``; ``return_before`` and ``return_after``, means; ``returns_changed``, the share
        of trajectories with another return (beyond 1e-6, for they are sums of float32 rewards);
        ``groups_kept_before`` and ``groups_kept_after``; ``groups_kept_in_both``.

    Raises:
        UserError: the tables are not of the same trajectories.
    """
    keys = [list(zip(*(table[name].to_pylist() for name in _KEYS), strict=True)) for table in (before, after)]
    if keys[0] != keys[1]:
        raise UserError(
            f"the two scorings hold {len(keys[0])} and {len(keys[1])} trajectories, not the same ones; "
            "remove the scoring's run (starpo runs rm) and score again"
        )
    old, new = (np.asarray(table["return"], dtype=np.float64) for table in (before, after))
    kept_before, kept_after = _kept(before), _kept(after)
    return {
        "trajectories": len(old),
        "return_before": float(old.mean()) if len(old) else 0.0,
        "return_after": float(new.mean()) if len(new) else 0.0,
        "returns_changed": float((np.abs(new - old) > 1e-6).mean()) if len(old) else 0.0,
        "groups_kept_before": len(kept_before),
        "groups_kept_after": len(kept_after),
        "groups_kept_in_both": len(kept_before & kept_after),
    }


def _kept(scored: pa.Table) -> set[int]:
    groups, kept = scored["group"].to_pylist(), scored["kept"].to_pylist()
    return {group for group, flag in zip(groups, kept, strict=True) if flag}
