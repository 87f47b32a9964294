"""Windowed trajectories from engine to learner: the same log-probs, and the same update however they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import torch
from builders import agent, algorithm, engine_config, learner_config, plan, template_of

from starpo.learning.batching import Sequences, sequences_of
from starpo.learning.learner import Learner, UpdateResult
from starpo.learning.update_table import updates_to_table
from starpo.rollout.engine import Engine
from starpo.rollout.episodes import play
from starpo.rollout.vllm_engine import VLLMEngine
from starpo.store.policies import Policy
from starpo.store.trajectory_table import trajectories_to_table

pytestmark = pytest.mark.slow

TOLERANCE = 1e-3
"""nats, between two float32 implementations."""
TURNS = 5


@pytest.fixture(scope="module")
def vllm(tiny_policy: Policy) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(
        tiny_policy.model_directory,
        engine_config(),
        context=256,
        stop_ids=template_of(tiny_policy).stop_ids,
        identity=tiny_policy.identity,
    )
    yield engine
    engine.close()


def played(engine: Engine, policy: Policy, *, context_turns: int | None) -> pa.Table:
    harness = agent(max_turns=TURNS, max_actions=40, context_turns=context_turns)
    trajectories = play(engine, plan(groups=4, group_size=4), harness, template_of(policy))
    return trajectories_to_table(
        trajectories, policy_step=0, temperature=1.0, top_p=1.0, windowed=context_turns is not None
    )


def batch_of(turns: pa.Table) -> Sequences:
    """Member 0 and 2 of each group earn 1 in every turn, the others nothing."""
    keys = list(zip(turns["group"].to_pylist(), turns["member"].to_pylist(), strict=True))
    rewards = {key: [float(key[1] % 2 == 0)] * keys.count(key) for key in keys}
    return sequences_of(turns, rewards, set(rewards))


def updated(
    policy: Policy, batch: Sequences, *, algo: Any = None, **changes: Any
) -> tuple[Learner, UpdateResult]:
    actor = Learner(policy, learner_config(**changes), algo or algorithm(), temperature=1.0)
    return actor, actor.update(batch, seed=0, iteration=0)


@pytest.fixture(scope="module")
def windows(vllm: VLLMEngine, tiny_policy: Policy) -> pa.Table:
    return played(vllm, tiny_policy, context_turns=1)


def test_engine_and_learner_agree_on_every_token_of_a_windowed_trajectory(
    tiny_policy: Policy, windows: pa.Table
) -> None:
    batch = batch_of(windows)
    assert sum(len(starts) > 1 for starts in batch.starts) >= 4, "some trajectories have windows"
    _, result = updated(tiny_policy, batch, rows_per_step=16)
    assert result.metrics["logprob_difference_max"] <= TOLERANCE
    assert float((result.learner_logp - batch.old_logp)[batch.mask].abs().max()) <= TOLERANCE
    assert result.metrics["trained_tokens"] == sum(map(len, windows["response_ids"].to_pylist()))
    table = updates_to_table(batch, result, tiny_policy)
    assert [len(row) for row in table["learner_logprobs"].to_pylist()] == [
        len(row)
        for row in windows.sort_by([(key, "ascending") for key in ("group", "member", "turn")])[
            "response_ids"
        ].to_pylist()
    ]


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_chains_in_micro_batches_of_their_own_give_the_same_update(
    tiny_policy: Policy, windows: pa.Table, aggregation: Any
) -> None:
    batch, algo = batch_of(windows), algorithm(aggregation=aggregation)
    longest = max(end - begin for row in range(len(batch.keys)) for begin, end in batch.chains(row))
    assert longest < int(batch.lengths.max())
    whole, expected = updated(tiny_policy, batch, algo=algo)
    cut, found = updated(tiny_policy, batch, algo=algo, micro_batch_tokens=longest)
    assert torch.allclose(found.learner_logp, expected.learner_logp, atol=1e-4)
    assert torch.allclose(found.values, expected.values, atol=1e-4)
    assert found.metrics["policy_loss"] == pytest.approx(expected.metrics["policy_loss"], abs=1e-4)
    assert found.metrics["gradient_norm"] == pytest.approx(expected.metrics["gradient_norm"], rel=1e-3)
    assert whole.counters() == cut.counters()


def test_a_window_as_long_as_the_episode_gives_the_very_same_update(
    vllm: VLLMEngine, tiny_policy: Policy
) -> None:
    plain = played(vllm, tiny_policy, context_turns=None)
    long = played(vllm, tiny_policy, context_turns=TURNS)
    assert long.drop_columns(["chain_start", "schema_version"]).equals(plain.drop_columns("schema_version"))
    (one, first), (other, second) = (updated(tiny_policy, batch_of(each)) for each in (plain, long))
    assert first.metrics == second.metrics
    assert torch.equal(first.learner_logp, second.learner_logp)
    assert all(torch.equal(tensor, other.weights()[name]) for name, tensor in one.weights().items())


def test_without_a_response_mask_windows_train_too(tiny_policy: Policy, windows: pa.Table) -> None:
    batch = batch_of(windows)
    _, result = updated(tiny_policy, batch, algo=algorithm(response_mask=False), old_logprobs="recompute")
    chains = sum(len(starts) for starts in batch.starts)
    assert result.metrics["trained_tokens"] == int(batch.lengths.sum()) - chains
