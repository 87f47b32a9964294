"""The Parquet tables: explicit schemas, one place.

Every table carries ``schema_version``; readers refuse what they do not know. Equal runs give equal bytes: no
clock time and no external id enters a table.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

SCHEMA_VERSION = 1
"""Of every table but the turns of an agent with a window."""

WINDOWED_VERSION = 2
"""Of tables of turns with the column ``chain_start``, which are written where ``agent.context_turns`` is set."""

DETAILED_VERSION = 2
"""Of scored tables with each term's value per turn, which are written where a term or a normalisation needs them."""

_TEXT = pa.dictionary(pa.int32(), pa.string())

_KEYS = [
    ("iteration", pa.int32()),
    ("policy_step", pa.int32()),
    ("environment", _TEXT),
    ("split", _TEXT),
    ("stream", _TEXT),
    ("group", pa.int32()),
    ("member", pa.int32()),
]

#: One row per turn.
TURNS = pa.schema(
    [
        *_KEYS,
        ("turn", pa.int32()),
        ("instance_seed", pa.int64()),
        ("dynamics_seed", pa.int64()),
        ("sampling_seed", pa.int64()),
        ("temperature", pa.float32()),
        ("top_p", pa.float32()),
        ("observation", pa.string()),
        ("context_ids", pa.list_(pa.int32())),
        ("response", pa.string()),
        ("response_ids", pa.list_(pa.int32())),
        ("response_logprobs", pa.list_(pa.float32())),
        ("stop_reason", _TEXT),
        ("thought", pa.string()),
        ("actions", pa.list_(pa.string())),
        ("executed", pa.list_(pa.string())),
        ("format_valid", pa.bool_()),
        ("reward", pa.float32()),
        ("effective", pa.int32()),
        ("next_observation", pa.string()),
        ("terminated", pa.bool_()),
        ("truncated", pa.bool_()),
        ("success", pa.bool_()),
        ("trajectory_stop", _TEXT),
        ("error", pa.string()),
        ("info", pa.string()),
        ("schema_version", pa.int16()),
    ]
)

#: The same where prompts may be windows: at a ``chain_start`` ``context_ids`` are the whole prompt.
WINDOWED_TURNS = TURNS.insert(TURNS.get_field_index("response"), pa.field("chain_start", pa.bool_()))

#: One row per trajectory.
SCORED = pa.schema(
    [
        *_KEYS,
        ("turn_rewards", pa.list_(pa.float32())),
        ("environment_return", pa.float32()),
        ("terms", pa.string()),
        ("return", pa.float32()),
        ("success", pa.bool_()),
        ("turns", pa.int32()),
        ("actions", pa.int32()),
        ("response_tokens", pa.int32()),
        ("tokens", pa.int32()),
        ("format_valid_share", pa.float32()),
        ("trajectory_stop", _TEXT),
        ("group_mean", pa.float32()),
        ("group_std", pa.float32()),
        ("quarantined", pa.bool_()),
        ("kept", pa.bool_()),
        ("reason", _TEXT),
        ("schema_version", pa.int16()),
    ]
)

#: The same where sums of terms do not tell all: each term's value per turn and why some are missing, as JSON objects
#: by term, and the rewards that are learned from, which differ where returns are normalised.
DETAILED_SCORED = pa.schema(
    [
        *SCORED,
        ("turn_terms", pa.string()),
        ("missing", pa.string()),
        ("learned_rewards", pa.list_(pa.float32())),
    ]
)

#: One row per turn of a trained trajectory.
UPDATES = pa.schema(
    [
        *_KEYS,
        ("turn", pa.int32()),
        ("advantages", pa.list_(pa.float32())),
        ("values", pa.list_(pa.float32())),
        ("learner_logprobs", pa.list_(pa.float32())),
        ("ratios", pa.list_(pa.float32())),
        ("schema_version", pa.int16()),
    ]
)

#: One row per evaluated trajectory that failed (or, in Bandit, was not paid): what that is put down to.
LABELS = pa.schema(
    [
        *_KEYS,
        ("label", _TEXT),
        ("turn", pa.int32()),
        ("chance", pa.float32()),
        ("schema_version", pa.int16()),
    ]
)

TABLES: dict[str, pa.Schema] = {"turns": TURNS, "scored": SCORED, "updates": UPDATES, "labels": LABELS}


def turns_schema(*, windowed: bool) -> pa.Schema:
    """The schema of the turns of an agent with or without ``context_turns``."""
    return WINDOWED_TURNS if windowed else TURNS


def schema_of(kind: str, columns: Collection[str]) -> pa.Schema:
    """The schema that a table of ``kind`` must have which holds ``columns``."""
    if kind == "scored":
        return DETAILED_SCORED if "turn_terms" in columns else SCORED
    return turns_schema(windowed="chain_start" in columns) if kind == "turns" else TABLES[kind]
