"""Seeds depend on what a draw is for, and on nothing else."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.seeds import Purpose, SeedKey

KEYS = st.builds(
    SeedKey,
    run_seed=st.integers(0, 5),
    purpose=st.sampled_from(list(Purpose)),
    stream=st.sampled_from(["", "train", "validation", "test"]),
    **{name: st.integers(0, 5) for name in ("iteration", "group", "round", "attempt", "member", "turn")},
)


@given(one=KEYS, other=KEYS)
def test_different_keys_give_different_seeds_and_equal_ones_the_same(one: SeedKey, other: SeedKey) -> None:
    assert (one.integer() == other.integer()) == (one == other)


@given(key=KEYS)
def test_a_seed_fits_into_63_bits_and_its_generator_repeats(key: SeedKey) -> None:
    assert 0 <= key.integer() < 2**63
    assert key.generator().random(4).tolist() == key.generator().random(4).tolist()


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(SeedKey)])
def test_every_field_of_the_key_matters(field: str) -> None:
    key = SeedKey(1, Purpose.SAMPLING, "train", 1, 1, 1, 1, 1, 1)
    changed = {"purpose": Purpose.DYNAMICS, "stream": "test"}.get(field, 2)
    assert dataclasses.replace(key, **{field: changed}).integer() != key.integer()


def test_seeds_are_the_same_in_every_process() -> None:
    code = "from starpo.seeds import *; print(SeedKey(3, Purpose.SAMPLING, 'test', 1, 2, member=4).integer())"
    there = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    here = SeedKey(3, Purpose.SAMPLING, "test", 1, 2, member=4).integer()
    assert [int(text) for text in there] == [here, here]


def test_seeds_never_change_because_stored_runs_depend_on_them() -> None:
    assert SeedKey(0, Purpose.INSTANCE, "train").integer() == RECORDED
    assert SeedKey(0, Purpose.INSTANCE, "train").generator().integers(1000, size=3).tolist() == DRAWN


#: Of the key (0, instance, "train"), as of schema version 1.
RECORDED = 5476582973752911321
DRAWN = [34, 2, 993]
