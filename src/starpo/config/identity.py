"""What makes a run the same run: its parameters made flat, their hash, and those that may change."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from starpo.config.gates import MetricLimits
from starpo.config.report import ReportConfig

#: Parameters that may change on an existing run because they only extend or observe it.
EXTENDABLE = {
    ("run", "iterations"),
    ("run", "threads"),
    ("run", "keep_last"),
    ("run", "source"),
    ("run", "name"),
    ("run", "step_limit_seconds"),
    ("learner", "max_bad_steps"),
    ("environment", "workers"),
    ("environment", "step_limit_seconds"),
    ("environment", "start_limit_seconds"),
    ("gates", "every"),
    ("gates", "max_quarantined_share"),
    *(("gates", "limits", name) for name in MetricLimits.model_fields),
    *(("report", name) for name in ReportConfig.model_fields),
}


def flatten(tree: dict[str, Any], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """``{"a": {"b": 1}}`` to ``{("a", "b"): 1}``."""
    flat: dict[tuple[str, ...], Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, (*prefix, str(key)))
        else:
            flat[(*prefix, str(key))] = value
    return flat


def fingerprint(tree: Any) -> str:
    """First 12 hex digits of the SHA-256 of the canonical JSON of ``tree``."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True, default=str).encode()).hexdigest()[:12]
