"""The built-in reward terms by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starpo.rewards.judge import Judge
from starpo.rewards.progress import progress
from starpo.rewards.repetition import repetition
from starpo.rewards.terms import (
    action_validity,
    environment,
    format_penalty,
    length,
    overlong,
    success_bonus,
    truncation_penalty,
    turn_penalty,
)
from starpo.rewards.thoughts import grounding, plan_agreement

TERMS: Final[Mapping[str, Callable[..., Any]]] = {
    "environment": environment,
    "format_penalty": format_penalty,
    "truncation_penalty": truncation_penalty,
    "turn_penalty": turn_penalty,
    "action_validity": action_validity,
    "length": length,
    "overlong": overlong,
    "repetition": repetition,
    "success_bonus": success_bonus,
    "grounding": grounding,
    "plan_agreement": plan_agreement,
    "progress": progress,
    "judge": Judge,
}
"""Functions, or classes whose objects are called."""

#: The state that each needs, as the environment's method that gives it.
NEEDED: Final[Mapping[str, str]] = {"grounding": "facts", "plan_agreement": "facts", "progress": "distance"}
