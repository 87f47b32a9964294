"""Which policies are evaluated, and the disk that a run will need, by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from starpo.store.policy_state import MODEL
from starpo.store.retention import evaluated_iterations, expected_bytes

ESTIMATORS = {"gae": True, "grpo": False}
"""Estimators, and whether they have a critic."""


def parameters(**changes: Any) -> Any:
    """Four iterations of six trajectories with ten tokens at most; twelve evaluated prompts every second one."""
    suites = {"validation": SimpleNamespace(prompts=5), "test": SimpleNamespace(prompts=7)}
    sections = {
        "run": SimpleNamespace(iterations=4, keep_last=1),
        "evaluation": SimpleNamespace(
            every=2, periodic=["validation"], final=["test"], suites=suites, samples=1
        ),
        "algorithm": SimpleNamespace(estimator="gae"),
        "learner": SimpleNamespace(lora=None),
        "rollout": SimpleNamespace(groups=2, group_size=3),
        "filter": SimpleNamespace(resample=None),
        "agent": SimpleNamespace(context_turns=None, max_turns=3, max_tokens_per_trajectory=10),
    }
    return SimpleNamespace(**sections | changes)


@pytest.mark.parametrize(("last", "expected"), [(4, [0, 2, 4]), (5, [0, 2, 4, 5]), (1, [0, 1])])
def test_the_first_every_second_and_the_last_policy_are_evaluated(last: int, expected: list[int]) -> None:
    assert evaluated_iterations(parameters(run=SimpleNamespace(iterations=last))) == expected


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_disk_that_a_run_needs(tmp_path: Path, estimator: str) -> None:
    model = {"a": torch.zeros(2, 3, dtype=torch.bfloat16), "b": torch.zeros(4, dtype=torch.bfloat16)}
    save_file(model, tmp_path / MODEL)
    found = expected_bytes(tmp_path, parameters(algorithm=SimpleNamespace(estimator=estimator)))
    weights = 10 * 4  # stored in float32
    networks = 2 if ESTIMATORS[estimator] else 1
    states = 2 * 3 * networks * weights  # the last and the one being written: weights and two moments
    tokens = (4 * 6 + 3 * 12) * 10
    assert found == 3 * weights + states + tokens * 6
