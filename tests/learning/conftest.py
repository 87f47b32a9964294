"""What the learner's tests learn from: one rollout of the tiny policy."""

from __future__ import annotations

import pyarrow as pa
import pytest
from builders import agent, engine_config, plan, template_of

from starpo.learning.batching import Sequences, sequences_of
from starpo.rollout.episodes import play
from starpo.rollout.transformers_engine import TransformersEngine
from starpo.store.policies import Policy
from starpo.store.trajectory_table import trajectories_to_table


@pytest.fixture(scope="module")
def engine(tiny_policy: Policy) -> TransformersEngine:
    return TransformersEngine(
        tiny_policy.model_directory,
        engine_config(),
        stop_ids=template_of(tiny_policy).stop_ids,
        identity=tiny_policy.identity,
    )


@pytest.fixture(scope="module")
def turns(tiny_policy: Policy, engine: TransformersEngine) -> pa.Table:
    """4 groups of 4, at temperature 1."""
    trajectories = play(engine, plan(groups=4, group_size=4), agent(), template_of(tiny_policy))
    return trajectories_to_table(trajectories, policy_step=0, temperature=1.0, top_p=1.0)


@pytest.fixture(scope="module")
def batch(turns: pa.Table) -> Sequences:
    """Members 0 and 2 of each group earn 1 in their last turn, the others nothing."""
    counts: dict[tuple[int, int], int] = {}
    for key in zip(turns["group"].to_pylist(), turns["member"].to_pylist(), strict=True):
        counts[key] = counts.get(key, 0) + 1
    rewards = {
        (group, member): [0.0] * (count - 1) + [float(member % 2 == 0)]
        for (group, member), count in counts.items()
    }
    return sequences_of(turns, rewards, set(rewards))
