"""How many random examples a property is tried with: a share of what the profile in ``conftest.py`` says."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> settings:
    """Settings with ``share`` of the profile's examples, at least five; for properties whose examples are slow."""
    return settings(max_examples=max(5, round(settings.default.max_examples * share)))
