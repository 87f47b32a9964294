"""champion.json: outcomes in bits, verdicts, and that only the recorded weights count."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.errors import UserError
from starpo.evaluation.champions import (
    FILE,
    Champion,
    Outcomes,
    find_champion,
    judge,
    model_hash,
    read_champions,
    write_champion,
)
from starpo.store.policy_state import MODEL

RECORD = "starpo champion set lake@50 --env=study_lake"


def outcomes(bits: np.ndarray, start: str = "seeds") -> Outcomes:
    packed = np.packbits(bits.astype(bool)).tobytes().hex()
    return Outcomes(prompts=len(bits), success=float(bits.mean()), solved=packed, start=start)


def champion(**changes) -> Champion:
    fields = {"run": "lake", "iteration": 50, "env": "base", "sha256": "0" * 64, "suites": {}}
    return Champion(**fields | changes)


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


def test_one_lost_prompt_is_no_drop():
    before, after = share(0.9), share(0.9)
    after[0] = False
    assert judge({"s": outcomes(before)}, {"s": outcomes(after)}, RECORD)[0].verdict == "same"


def test_only_common_suites_with_the_same_seeds_are_paired():
    before = {"a": outcomes(share(0.5)), "b": outcomes(share(0.5))}
    assert [each.suite for each in judge(before, {"b": outcomes(share(0.5))}, RECORD)] == ["b"]
    with pytest.raises(UserError, match=f"no suite in common: a, b against c; record anew: {RECORD}"):
        judge(before, {"c": outcomes(share(0.5))}, RECORD)
    with pytest.raises(UserError, match=f"suite a: other prompts or seeds.*{RECORD}"):
        judge(before, {"a": outcomes(share(0.5), start="others")}, RECORD)


def test_champions_of_several_environments_live_side_by_side(tmp_path: Path):
    write_champion(tmp_path, "lake", champion(suites={"test-t0_5": outcomes(share(0.9))}))
    write_champion(tmp_path, "bandit", champion(run="arms", iteration=15))
    write_champion(tmp_path, "lake", champion(iteration=60))
    found = read_champions(tmp_path)
    assert {name: each.source for name, each in found.items()} == {"bandit": "arms@15", "lake": "lake@60"}
    assert list(json.loads((tmp_path / FILE).read_text())) == ["bandit", "lake"]


@pytest.mark.parametrize("text", ["{", "[]", '{"lake": {}}', '{"lake": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UserError, match=r"champion\.json is damaged"):
        read_champions(tmp_path)


def test_the_champion_must_have_the_recorded_weights(tmp_path: Path):
    with pytest.raises(UserError, match="no champion for 'lake'; there is: none yet"):
        find_champion(tmp_path, "lake")
    folder = tmp_path / "data/06_models/lake/policy_0050"
    folder.mkdir(parents=True)
    write_champion(tmp_path, "lake", champion())
    with pytest.raises(UserError, match="dvc pull"):
        find_champion(tmp_path, "lake")
    (folder / MODEL).write_bytes(b"weights")
    (folder / "manifest.json").write_text(json.dumps({"schema_version": 2, "files": {}}))
    with pytest.raises(
        UserError, match=f"this is not the champion.*starpo champion set lake@50 --env={champion().env}"
    ):
        find_champion(tmp_path, "lake")
    assert find_champion(tmp_path, "lake", retrained=True).directory == folder
    write_champion(tmp_path, "lake", champion(sha256=model_hash(folder)))
    assert find_champion(tmp_path, "lake").directory == folder
