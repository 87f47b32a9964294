"""Update: the learner takes the kept trajectories, the engine takes the new weights."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.config.agent import AgentConfig
from starpo.config.algorithm import AlgorithmConfig
from starpo.config.learner import LearnerConfig
from starpo.config.monitor import MonitorConfig
from starpo.config.rollout import EngineConfig, RolloutConfig
from starpo.config.run import RunConfig
from starpo.learning.batching import Sequences, sequences_of
from starpo.learning.host import LearnerHost
from starpo.learning.learner import Learner
from starpo.learning.update_table import updates_to_table
from starpo.monitor.echo_trap import MonitorState, decide, describe, observe, rolled_back, stages
from starpo.monitor.iteration_metrics import rollout_metrics
from starpo.rollout.host import EngineHost
from starpo.rollout.sync import prove_sync, prove_weights
from starpo.scoring.resampling import resampling_metrics
from starpo.store.layout import policy_name
from starpo.store.policies import Policy, PolicyState
from starpo.store.retention import last_complete
from starpo.store.schemas import UPDATES

#: Trajectories whose first chain's log-probs prove each weight sync.
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
    monitor: MonitorConfig,
    *evaluated: dict[str, Any],
) -> tuple[PolicyState, pa.Table, dict[str, Any]]:
    """policy k -> policy k+1, with the tokens' advantages and the iteration's metrics.

    Without a kept trajectory there is no update: the next policy repeats this one. After ``run.max_skipped``
    such iterations in a row the run stops; later iterations pass its last policy on. Where the Echo Trap monitor
    raises an alarm and ``monitor.action`` says so, this update is thrown away and the run stops or goes back to an
    earlier policy. ``evaluated`` are evaluations of policy k, which the shared engine must have finished before its
    weights change.
    """
    metrics: dict[str, Any] = {"iteration": policy.iteration, "policy_step": policy.step}
    if policy.manifest["status"] == "stopped":
        return _repeat(policy, "stopped", policy.monitor), UPDATES.empty_table(), metrics | _stamp("stopped")
    metrics |= rollout_metrics(rollouts, scored) | resampling_metrics(rollouts, rollout.groups)
    kept = scored.filter(pc.field("kept"))
    if not kept.num_rows:
        seen = _observe(policy, metrics, monitor)
        state = _interrupt(policy, seen, monitor, metrics)
        if state is None:
            enough = policy.counters["skipped"] + 1 >= run.max_skipped
            state = _repeat(policy, "stopped" if enough else "skipped", seen.model_dump(mode="json"))
        return state, UPDATES.empty_table(), metrics | _stamp(state.status)
    keys = list(zip(kept["group"].to_pylist(), kept["member"].to_pylist(), strict=True))
    rewards = dict(zip(keys, kept["turn_rewards"].to_pylist(), strict=True))
    batch = sequences_of(rollouts, rewards, set(keys))
    engine_host.serve(policy, engine, agent).engine.sleep()
    actor = learner_host.at(policy, learner, algorithm, temperature=rollout.temperature)
    started = time.perf_counter()
    result = actor.update(batch, seed=run.seed, iteration=policy.iteration)
    metrics["seconds_update"] = time.perf_counter() - started
    metrics |= result.metrics
    seen = _observe(policy, metrics, monitor)
    if (thrown := _interrupt(policy, seen, monitor, metrics)) is not None:
        actor.holds = ""  # what it has learned in this iteration is none of the run's policies
        return thrown, UPDATES.empty_table(), metrics | _stamp(thrown.status)
    state = _next_state(policy, run, actor, seen)
    started = time.perf_counter()
    metrics["sync_difference"] = _sync(engine_host, actor, policy, state, batch, agent, engine)
    metrics["seconds_sync"] = time.perf_counter() - started
    return state, updates_to_table(batch, result, policy), metrics | _stamp("trained")


def _observe(policy: Policy, metrics: dict[str, Any], config: MonitorConfig) -> MonitorState:
    """What the monitor knows after this iteration; its stages and new events go into ``metrics``."""
    before = MonitorState.model_validate(policy.monitor)
    seen = observe(before, metrics, config)
    metrics |= stages(seen) | {
        "monitor_events": [describe(event) for event in seen.events[len(before.events) :]]
    }
    return seen


def _interrupt(
    policy: Policy, seen: MonitorState, config: MonitorConfig, metrics: dict[str, Any]
) -> PolicyState | None:
    """The next policy where the monitor's verdict ends or turns back the run, else None."""
    action = decide(seen, config)
    good = last_complete(policy.directory.parent, seen.good) if seen.good is not None else None
    if action == "go_on":
        return None
    if action == "stop" or good is None:
        metrics["monitor_events"].append(f"iteration {policy.iteration}: the run stops")
        return _repeat(policy, "stopped", seen.model_dump(mode="json"))
    metrics["monitor_events"].append(
        f"iteration {policy.iteration}: back to the policy of iteration {good.iteration}"
    )
    return PolicyState(
        run=policy.manifest["run"],
        iteration=policy.iteration + 1,
        # A number of its own: what is learned from here on has never been there.
        policy_step=policy.step + 1,
        status="rolled_back",
        counters=good.counters | {"skipped": 0},
        model_files=policy.directory,
        harness=policy.harness(),
        weights_in=good.manifest["weights_in"],
        monitor=rolled_back(seen, policy.iteration).model_dump(mode="json"),
    )


def _next_state(policy: Policy, run: RunConfig, actor: Learner, seen: MonitorState) -> PolicyState:
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
        weights_in=policy_name(iteration),
        parts=actor.parts() if complete else {},
        adapter=actor.adapter(),
        monitor=seen.model_dump(mode="json"),
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
    prove_weights(serving.engine, state.weights.items())
    # A chain may fill the whole context, a scored sequence may not.
    longest = agent.max_tokens_per_trajectory - 1
    probe = [
        batch.token_ids[row, : min(batch.chains(row)[0][1], longest)].tolist()
        for row in range(min(PROBE, len(batch.keys)))
    ]
    return prove_sync(serving.engine, actor, probe, config.sync_tolerance)


def _repeat(policy: Policy, status: str, monitor: dict[str, Any]) -> PolicyState:
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
        monitor=monitor,
    )


def _stamp(status: str) -> dict[str, Any]:
    return {"status": status, "timestamp": int(time.time() * 1000)}
