"""Outcomes in bits, and verdicts of paired comparisons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.errors import UserError
from starpo.evaluation.outcomes import Outcomes, judge

RECORD = "starpo champion set lake@50 --env=study_lake"


def outcomes(bits: np.ndarray, start: str = "seeds") -> Outcomes:
    packed = np.packbits(bits.astype(bool)).tobytes().hex()
    return Outcomes(prompts=len(bits), success=float(bits.mean()), solved=packed, start=start)


def share(rate: float, count: int = 256) -> np.ndarray:
    """The first ``rate`` of the prompts solved."""
    return np.arange(count) < rate * count


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_outcomes_come_back_from_json(bits):
    stored = Outcomes.model_validate_json(outcomes(np.array(bits)).model_dump_json())
    assert stored.bits().tolist() == bits


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [(0.9, 0.9, "same"), (0.9, 0.7, "worse"), (0.5, 0.8, "better")]
)
def test_a_verdict_needs_an_interval_without_zero(before, after, verdict):
    (one,) = judge({"test-t0_5": outcomes(share(before))}, {"test-t0_5": outcomes(share(after))}, RECORD)
    assert one.verdict == verdict
    assert one.difference == pytest.approx(share(after).mean() - share(before).mean())
    assert one.low <= one.difference <= one.high
    assert one.changed == (share(before) != share(after)).sum()


def test_one_lost_prompt_is_no_drop():
    before, after = share(0.9), share(0.9)
    after[0] = False
    (one,) = judge({"s": outcomes(before)}, {"s": outcomes(after)}, RECORD)
    assert (one.verdict, one.changed) == ("same", 1)


def test_only_common_suites_with_the_same_seeds_are_paired():
    before = {"a": outcomes(share(0.5)), "b": outcomes(share(0.5))}
    assert [each.suite for each in judge(before, {"b": outcomes(share(0.5))}, RECORD)] == ["b"]
    with pytest.raises(UserError, match=f"no suite in common: a, b against c; record anew: {RECORD}"):
        judge(before, {"c": outcomes(share(0.5))}, RECORD)
    with pytest.raises(UserError, match=f"suite a: other prompts or seeds.*{RECORD}"):
        judge(before, {"a": outcomes(share(0.5), start="others")}, RECORD)
