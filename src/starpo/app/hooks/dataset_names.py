"""Names of the catalog's entries that hooks react to."""

from __future__ import annotations

import re

METRICS = re.compile(r"iter_\d+\.metrics|stage_metrics")
"""Metrics of an iteration, the last that is written of it."""
SCORED = re.compile(r"iter_\d+\.scored|stage_scored")
"""Scored trajectories of an iteration."""
SUMMARY = re.compile(
    r"(?P<kind>evaluation|against)__(?P<suite>\w+?)__t(?P<temperature>[\d_]+?)__(?P<step>\d+)\.summary"
)
"""Result of an evaluation; ``temperature`` as in file names, ``0_5``."""
PLAYED = re.compile(r"(?P<kind>evaluation|against)__(?P<suite>\w+?)__t[\d_]+?__\d+\.turns")
"""Turns of an evaluation."""
COMPARISON = re.compile(r"comparison_(?P<last>\d+)")
"""First against last policy."""
POLICY = re.compile(r"policy_\d+")
"""A learner state."""
