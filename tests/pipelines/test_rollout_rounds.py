"""Re-sampling in the rollout node, with a real engine and a policy that plays badly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from builders import LAKE, agent, engine_config

from starpo.config.gates import GatesConfig
from starpo.config.reward import FilterConfig, RewardConfig
from starpo.config.rollout import RolloutConfig
from starpo.config.run import RunConfig
from starpo.pipelines.rollout.nodes import generate_rollouts
from starpo.rollout.host import EngineHost
from starpo.scoring.scoring import mark_kept, score_rollouts
from starpo.store.policies import Policy

pytestmark = pytest.mark.slow

GROUPS, REWARD, GATES = 2, RewardConfig(terms={"environment": {}}), GatesConfig()


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    opened = EngineHost()
    yield opened
    opened.close()


def rollouts(host: EngineHost, policy: Policy, **resample: Any) -> pa.Table:
    return generate_rollouts(
        host,
        policy,
        RunConfig(seed=3, iterations=1),
        LAKE,
        agent(),
        engine_config(kind="transformers"),
        RolloutConfig(groups=GROUPS, group_size=2),
        REWARD,
        FilterConfig(keep_ratio=1.0, resample=resample or None),
        GATES,
    )


def test_further_rounds_continue_the_groups_and_leave_the_first_round_as_it_was(
    host: EngineHost, tiny_policy: Policy
) -> None:
    plain, more = rollouts(host, tiny_policy), rollouts(host, tiny_policy, min_kept_groups=2, max_rounds=3)
    assert more.slice(0, plain.num_rows).to_pylist() == plain.to_pylist()
    numbers = more["group"].to_pylist()
    rounds = max(numbers) // GROUPS
    assert 0 < rounds <= 3, "this policy solves no lake twice out of four"
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(GROUPS * (1 + rounds)))

    def kept(turns: pa.Table) -> int:
        scored = mark_kept(
            score_rollouts(turns, REWARD, GATES, LAKE, RunConfig(iterations=1)), FilterConfig(keep_ratio=1.0)
        )
        return len(pc.unique(scored.filter(scored["kept"])["group"]))

    before_last = more.filter(pc.less(more["group"], GROUPS * rounds))
    assert kept(before_last) < 2
    assert rounds == 3 or kept(more) >= 2
    seeds = {(row["group"], row["instance_seed"]) for row in more.to_pylist()}
    assert len({seed for _, seed in seeds}) == len(seeds) == GROUPS * (1 + rounds), (
        "one instance a group, all new"
    )
    assert len(pc.unique(more["sampling_seed"])) == more.num_rows


def test_the_same_seeds_draw_the_same_rounds(host: EngineHost, tiny_policy: Policy) -> None:
    one, other = (rollouts(host, tiny_policy, min_kept_groups=2, max_rounds=1) for _ in range(2))
    assert one.equals(other)
