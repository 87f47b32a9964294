"""Update: the learner takes the kept trajectories, the engine takes the new weights."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.config import AgentConfig, AlgorithmConfig, EngineConfig, LearnerConfig, RolloutConfig, RunConfig
from starpo.data.schemas import UPDATES
from starpo.data.update_table import updates_to_table
from starpo.learning.batching import Sequences, sequences_of
from starpo.learning.host import LearnerHost
from starpo.learning.learner import Learner
from starpo.learning.policy import Policy, PolicyState
from starpo.rollout.host import EngineHost
from starpo.rollout.sync import prove_sync
from starpo.tracking.iteration_metrics import rollout_metrics

#: Trajectories whose log-probs prove each weight sync.
PROBE = 4


def update_policy(
    engine_host: EngineHost,
    learner_host: LearnerHost,
    policy: Policy,
    rollouts: pa.Table,
    scored: pa.Table,
    run: RunConfig,
    agent: AgentConfig,
    engine: EngineConfig,
    rollout: RolloutConfig,
    algorithm: AlgorithmConfig,
    learner: LearnerConfig,
    *evaluated: dict[str, Any],
) -> tuple[PolicyState, pa.Table, dict[str, Any]]:
    """policy k -> policy k+1, with the tokens' advantages and the iteration's metrics.

    Without a kept trajectory there is no update: the next policy repeats this one. After ``run.max_skipped``
    such iterations in a row the run stops; later iterations pass its last policy on. ``evaluated`` are
    evaluations of policy k, which the shared engine must have finished before its weights change.
    """
    metrics: dict[str, Any] = {"iteration": policy.iteration, "policy_step": policy.step}
    if policy.manifest["status"] == "stopped":
        return _repeat(policy, run, "stopped"), UPDATES.empty_table(), metrics | _stamp("stopped")
    metrics |= rollout_metrics(rollouts, scored)
    kept = scored.filter(pc.field("kept"))
    if not kept.num_rows:
        skipped = policy.counters["skipped"] + 1
        status = "stopped" if skipped >= run.max_skipped else "skipped"
        return _repeat(policy, run, status), UPDATES.empty_table(), metrics | _stamp(status)
    keys = list(zip(kept["group"].to_pylist(), kept["member"].to_pylist(), strict=True))
    rewards = dict(zip(keys, kept["turn_rewards"].to_pylist(), strict=True))
    batch = sequences_of(rollouts, rewards, set(keys))
    engine_host.serve(policy, engine, agent).engine.sleep()
    actor = learner_host.at(policy, learner, algorithm, temperature=rollout.temperature)
    started = time.perf_counter()
    result = actor.update(batch, seed=run.seed, iteration=policy.iteration)
    metrics["seconds_update"] = time.perf_counter() - started
    metrics |= result.metrics
    state = _next_state(policy, run, actor)
    started = time.perf_counter()
    metrics["sync_difference"] = _sync(engine_host, actor, policy, state, batch, agent, engine)
    metrics["seconds_sync"] = time.perf_counter() - started
    return state, updates_to_table(batch, result, policy), metrics | _stamp("trained")


def _next_state(policy: Policy, run: RunConfig, actor: Learner) -> PolicyState:
    iteration = policy.iteration + 1
    # The last state is always complete: it is what a longer run goes on from.
    complete = iteration % run.checkpoint_every == 0 or iteration == run.iterations
    state = PolicyState(
        run=policy.manifest["run"],
        iteration=iteration,
        policy_step=policy.step + 1,
        status="trained",
        counters=actor.counters() | {"skipped": 0},
        model_files=policy.directory,
        harness=policy.harness(),
        weights=actor.weights(),
        weights_in=f"policy_{iteration:04d}",
        parts=actor.parts() if complete else {},
    )
    actor.holds = f"{state.run}/{state.policy_step}"
    return state


def _sync(
    host: EngineHost,
    actor: Learner,
    policy: Policy,
    state: PolicyState,
    batch: Sequences,
    agent: AgentConfig,
    config: EngineConfig,
) -> float:
    # Serves the old policy still; where it slept, loading wakes it.
    serving = host.serve(policy, config, agent)
    assert state.weights is not None
    serving.engine.load(state.weights.items(), f"{state.run}/{state.policy_step}")
    # A trajectory may fill the whole context, a scored sequence may not.
    longest = agent.max_tokens_per_trajectory - 1
    probe = [
        batch.token_ids[row, : min(batch.lengths[row], longest)].tolist()
        for row in range(min(PROBE, len(batch.keys)))
    ]
    return prove_sync(serving.engine, actor, probe, config.sync_tolerance)


def _repeat(policy: Policy, run: RunConfig, status: str) -> PolicyState:
    """The next iteration's policy where nothing was learned: a manifest that names the weights it repeats."""
    counters = policy.counters
    return PolicyState(
        run=policy.manifest["run"],
        iteration=policy.iteration + 1,
        policy_step=policy.step,
        status=status,
        counters=counters | {"skipped": counters["skipped"] + 1},
        model_files=policy.directory,
        harness=policy.harness(),
        weights_in=policy.manifest["weights_in"],
    )


def _stamp(status: str) -> dict[str, Any]:
    return {"status": status, "timestamp": int(time.time() * 1000)}
