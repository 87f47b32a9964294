"""One engine for the whole run, built at first use, always serving the policy that is asked for."""

from __future__ import annotations

import collections
from dataclasses import dataclass

from starpo.agent.template import ChatTemplate
from starpo.config.agent import AgentConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.rollout import EngineConfig
from starpo.errors import UserError
from starpo.rollout.engine import Engine
from starpo.rollout.environments import Environments, LocalEnvironments
from starpo.rollout.episodes import reading_of
from starpo.rollout.workers import WorkerPool
from starpo.store.policies import Policy


@dataclass(frozen=True)
class Serving:
    """An engine with the template of the policy it serves."""

    engine: Engine
    """Ready to generate."""
    template: ChatTemplate
    """Tokenisation of that policy."""


class EngineHost:
    """Lent to every node that generates; ``serve`` reloads on a mismatch of policy."""

    def __init__(self) -> None:
        self._serving: Serving | None = None
        self._config: EngineConfig | None = None
        self._pool: WorkerPool | None = None

    def environments(self, config: EnvironmentConfig, agent: AgentConfig) -> Environments:
        """Where the environments live: in this process, or in worker processes that stay for the whole run."""
        if not config.workers:
            return LocalEnvironments(reading_of(agent))
        if self._pool is None:
            self._pool = WorkerPool(config, reading_of(agent))
        return self._pool

    def serve(self, policy: Policy, config: EngineConfig, agent: AgentConfig) -> Serving:
        """The engine with the weights of ``policy``; built, reloaded or left alone as needed."""
        if self._serving is None:
            self._serving = self._start(policy, config, agent)
            self._config = config
        elif config != self._config:
            raise UserError("engine: its settings cannot change within one run")
        elif self._serving.engine.serves != policy.identity:
            from starpo.rollout.sync import prove_sync, prove_weights  # noqa: PLC0415 - loads torch
            from starpo.rollout.vllm_engine import stored_weights  # noqa: PLC0415

            policy.check_model()
            self._serving.engine.load_from(policy.model_directory, policy.identity)
            prove_weights(self._serving.engine, stored_weights(policy.model_directory))
            prove_sync(self._serving.engine, _reference(policy), self._probe(), config.sync_tolerance)
        return self._serving

    def _start(self, policy: Policy, config: EngineConfig, agent: AgentConfig) -> Serving:
        from starpo.rollout.vllm_engine import VLLMEngine, stored_weights  # noqa: PLC0415 - loads torch

        policy.check_model()
        template = ChatTemplate.of(policy.tokenizer())
        collections.deque(
            stored_weights(policy.model_directory), maxlen=0
        )  # looked at before an engine takes them
        context = agent.max_tokens_per_trajectory
        if config.kind == "transformers":
            from starpo.rollout.transformers_engine import TransformersEngine  # noqa: PLC0415

            engine: Engine = TransformersEngine(
                policy.model_directory, config, stop_ids=template.stop_ids, identity=policy.identity
            )
        else:
            engine = VLLMEngine(
                policy.model_directory,
                config,
                context=context,
                stop_ids=template.stop_ids,
                identity=policy.identity,
            )
        return Serving(engine, template)

    def _probe(self) -> list[list[int]]:
        assert self._serving is not None
        return [self._serving.template.opening("probe", "of the weights"), list(range(3, 40))]

    def close(self) -> None:
        """Free the engine and end the worker processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._serving is not None:
            self._serving.engine.close()
            self._serving = None


def _reference(policy: Policy) -> Engine:
    from starpo.rollout.transformers_engine import TransformersEngine  # noqa: PLC0415

    return TransformersEngine(
        policy.model_directory, EngineConfig(device="cpu"), stop_ids=(), identity=policy.identity
    )
