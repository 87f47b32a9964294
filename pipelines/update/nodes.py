"""Update: the learner takes the kept trajectories, the engine takes the new weights."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.config.agent import AgentConfig
from starpo.config.algorithm import AlgorithmConfig
from starpo.config.learner import LearnerConfig
from starpo.config.monitor import MonitorConfig
from starpo.config.rollout import EngineConfig, RolloutConfig
from starpo.config.run import RunConfig
from starpo.learning.host import LearnerHost
from starpo.monitor.echo_trap import MonitorState, decide, describe, observe, rolled_back, stages
from starpo.monitor.iteration_metrics import rollout_metrics
from starpo.rollout.host import EngineHost
from starpo.scoring.resampling import resampling_metrics
from starpo.store.policies import Policy
from starpo.store.policy_state import PolicyState
from starpo.store.retention import last_complete
from starpo.store.schemas import UPDATES

if TYPE_CHECKING:
    from starpo.learning.batching import Sequences
    from starpo.learning.learner import Learner

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
) -> tuple[pa.Table, dict[str, Any], PolicyState]:
    """policy k -> policy k+1, with the tokens' advantages and the iteration's metrics: learn, judge, hand over.

    Without a kept trajectory there is no update: the next policy repeats this one. After ``run.max_skipped``
    such iterations in a row the run stops; later iterations pass its last policy on. Where the Echo Trap monitor
    raises an alarm and ``monitor.action`` says so, this update is thrown away and the run stops or goes back to an
    earlier policy. ``evaluated`` are evaluations of policy k, which the shared engine must have finished before its
    weights change.
    """
    from starpo.learning.update_table import updates_to_table

    metrics: dict[str, Any] = {"iteration": policy.iteration, "policy_step": policy.step}
    nothing = UPDATES.empty_table()
    if policy.manifest["status"] == "stopped":
        return nothing, metrics | _stamp("stopped"), policy.repeated("stopped", policy.monitor)
    metrics |= rollout_metrics(rollouts, scored) | resampling_metrics(rollouts, rollout.groups)
    batch = _kept(rollouts, scored)
    if batch is not None:
        engine_host.serve(policy, engine, agent).engine.sleep()
        actor, result = learner_host.update(
            policy, batch, learner, algorithm, temperature=rollout.temperature, seed=run.seed
        )
        metrics |= result.metrics
    seen, other = _judge(policy, metrics, monitor)
    watched = seen.model_dump(mode="json")
    if other is None and batch is None:
        enough = policy.counters["skipped"] + 1 >= run.max_skipped
        other = policy.repeated("stopped" if enough else "skipped", watched)
    if other is not None or batch is None:
        assert other is not None
        return nothing, metrics | _stamp(other.status), other
    # The last state is always complete: it is what a longer run goes on from.
    complete = (policy.iteration + 1) % run.checkpoint_every == 0 or policy.iteration + 1 == run.iterations
    state = actor.hand_over(policy, complete=complete, monitor=watched)
    started = time.perf_counter()
    metrics["sync_difference"] = _sync(engine_host, actor, policy, state, batch, agent, engine)
    metrics["seconds_sync"] = time.perf_counter() - started
    return updates_to_table(batch, result, policy), metrics | _stamp("trained"), state


def _kept(rollouts: pa.Table, scored: pa.Table) -> Sequences | None:
    """The kept trajectories with their turns' rewards; None where there is none."""
    from starpo.learning.batching import sequences_of

    kept = scored.filter(pc.field("kept"))
    if not kept.num_rows:
        return None
    keys = list(zip(kept["group"].to_pylist(), kept["member"].to_pylist(), strict=True))
    column = "learned_rewards" if "learned_rewards" in kept.column_names else "turn_rewards"
    rewards = dict(zip(keys, kept[column].to_pylist(), strict=True))
    return sequences_of(rollouts, rewards, set(keys))


def _judge(
    policy: Policy, metrics: dict[str, Any], config: MonitorConfig
) -> tuple[MonitorState, PolicyState | None]:
    """What the monitor knows after this iteration, and the next policy where its verdict ends or turns back the run.

    Its stages and new events go into ``metrics``.
    """
    before = MonitorState.model_validate(policy.monitor)
    seen = observe(before, metrics, config)
    events = [describe(event) for event in seen.events[len(before.events) :]]
    metrics |= stages(seen) | {"monitor_events": events}
    action = decide(seen, config)
    if action == "go_on":
        return seen, None
    good = last_complete(policy.directory.parent, seen.good) if seen.good is not None else None
    if action == "stop" or good is None:
        events.append(f"iteration {policy.iteration}: the run stops")
        return seen, policy.repeated("stopped", seen.model_dump(mode="json"))
    events.append(f"iteration {policy.iteration}: back to the policy of iteration {good.iteration}")
    seen = rolled_back(seen, policy.iteration)
    return seen, policy.rolled_back(good, seen.model_dump(mode="json"))


def _sync(
    host: EngineHost,
    actor: Learner,
    policy: Policy,
    state: PolicyState,
    batch: Sequences,
    agent: AgentConfig,
    config: EngineConfig,
) -> float:
    """Load the new weights into the engine and prove them; the largest difference of log-probs, nats."""
    from starpo.rollout.sync import prove_sync, prove_weights

    # Serves the old policy still; where it slept, loading wakes it.
    serving = host.serve(policy, config, agent)
    assert state.weights is not None
    serving.engine.load(state.weights.items(), state.identity)
    prove_weights(serving.engine, state.weights.items())
    # A chain may fill the whole context, a scored sequence may not.
    longest = agent.max_tokens_per_trajectory - 1
    probe = [
        batch.token_ids[row, : min(batch.chains(row)[0][1], longest)].tolist()
        for row in range(min(PROBE, len(batch.keys)))
    ]
    return prove_sync(serving.engine, actor, probe, config.sync_tolerance)


def _stamp(status: str) -> dict[str, Any]:
    return {"status": status, "timestamp": int(time.time() * 1000)}
