"""Builders of configurations, policies and plans, shared by the test folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from starpo.agent.template import ChatTemplate
from starpo.base_policy.warm_start import build_base_policy, harness_of
from starpo.config.agent import AgentConfig
from starpo.config.algorithm import AlgorithmConfig
from starpo.config.base_policy import BasePolicyConfig, WarmStartStage
from starpo.config.environment import EnvironmentConfig
from starpo.config.learner import LearnerConfig, OptimizerConfig
from starpo.config.rollout import EngineConfig
from starpo.environments.splits import Split
from starpo.rollout.engine import Completion, Sampling
from starpo.rollout.episodes import RolloutPlan
from starpo.store.checksums import checksum
from starpo.store.machine import Machine
from starpo.store.policies import Policy
from starpo.store.policy_state import MANIFEST, PolicyState
from starpo.store.schemas import SCHEMA_VERSION, TURNS

PROJECT = Path(__file__).resolve().parents[1]
LAKE = EnvironmentConfig(name="frozen_lake", arguments={"coordinates": True})


def agent(**changes: Any) -> AgentConfig:
    """A harness for short lake episodes of several turns."""
    defaults = {
        "max_turns": 3,
        "max_actions_per_turn": 3,
        "max_actions": 6,
        "max_tokens_per_turn": 24,
        "max_tokens_per_trajectory": 256,
    }
    return AgentConfig(**defaults | changes)


def machine(**changes: Any) -> Machine:
    """A machine of no real kind."""
    defaults = {
        "processor": "Abacus 1",
        "capability": "AVX2",
        "threads": 1,
        "python": "3.11.0",
        "libraries": {"torch": "2.0"},
    }
    return Machine(**defaults | changes)


def engine_config(**changes: Any) -> EngineConfig:
    """float32 on the CPU."""
    return EngineConfig(**{"device": "cpu", "max_sequences": 32} | changes)


def optimizer(**changes: Any) -> OptimizerConfig:
    return OptimizerConfig(**{"learning_rate": 1e-3} | changes)


def learner_config(**changes: Any) -> LearnerConfig:
    """One pass in steps of eight trajectories on the CPU."""
    defaults = {"actor": optimizer(), "critic": optimizer(), "device": "cpu", "rows_per_step": 8}
    return LearnerConfig(**defaults | changes)


def algorithm(**changes: Any) -> AlgorithmConfig:
    return AlgorithmConfig(**changes)


def base_policy_config(**changes: Any) -> BasePolicyConfig:
    """One layer and a warm start of about a second."""
    defaults = {
        "layers": 1,
        "hidden_size": 32,
        "heads": 1,
        "batch_tokens": 1024,
        "stages": [WarmStartStage(demonstrations=400, malformed_share=0.1, learning_rate=0.01)],
    }
    return BasePolicyConfig(**defaults | changes)


def plan(**changes: Any) -> RolloutPlan:
    """Two prompts with two attempts each on the lake's training instances."""
    defaults: dict[str, Any] = {
        "environment": LAKE.name,
        "arguments": LAKE.arguments,
        "split": Split.TRAIN,
        "stream": "train",
        "seed": 5,
        "iteration": 0,
        "groups": 2,
        "group_size": 2,
        "temperature": 1.0,
    }
    return RolloutPlan(**defaults | changes)


def build_policy(directory: Path, *, run: str = "tiny", environment: EnvironmentConfig = LAKE) -> Policy:
    """A warm-started policy, stored as a run's first one under ``directory``/``run``."""
    files = directory / f"{run}-files"
    weights, _ = build_base_policy(files, environment, agent(), base_policy_config())
    return store(
        directory, model_files=files, weights=weights, run=run, harness=harness_of(environment, agent())
    )


def store(
    directory: Path,
    *,
    model_files: Path,
    weights: dict[str, Tensor] | None,
    run: str = "tiny",
    iteration: int = 0,
    policy_step: int | None = None,
    status: str = "imported",
    counters: dict[str, int] | None = None,
    harness: dict[str, Any] | None = None,
    weights_in: str | None = None,
    parts: dict[str, dict[str, Tensor]] | None = None,
) -> Policy:
    """Write a policy as its dataset would and open it."""
    name = f"policy_{iteration:04d}"
    PolicyState(
        run=run,
        iteration=iteration,
        policy_step=iteration if policy_step is None else policy_step,
        status=status,
        counters=counters or {"actor_steps": 0, "critic_steps": 0, "skipped": 0},
        model_files=model_files,
        harness=harness or {},
        weights=weights,
        weights_in=weights_in or name,
        parts=parts or {},
    ).write(directory / run / name)
    return Policy.open(directory / run / name)


def sealed(policy: Policy) -> Policy:
    """The policy whose manifest lists its files as they are now, as if they had been written so."""
    listed = {name: checksum(policy.directory / name) for name in policy.manifest["files"]}
    (policy.directory / MANIFEST).write_text(json.dumps(policy.manifest | {"files": listed}))
    return Policy.open(policy.directory)


def perturbed(weights: dict[str, Tensor], *, seed: int, scale: float = 0.05) -> dict[str, Tensor]:
    """The same shapes, every weight a little off."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + scale * torch.randn(tensor.shape, generator=generator)
        for name, tensor in weights.items()
    }


def template_of(policy: Policy) -> ChatTemplate:
    return ChatTemplate.of(policy.tokenizer())


class ScriptedEngine:
    """An engine that says what it is told, within the tokens allowed, and remembers what it was asked.

    ``reply(request)`` gives the ids of a request's response and whether a stop token ends it.
    """

    serves = "scripted"

    def __init__(self, reply: Callable[[int], tuple[Sequence[int], bool]]) -> None:
        self._reply = reply
        self.prompts: list[list[int]] = []
        self.samplings: list[Sampling] = []
        self._waiting: list[int] = []

    @classmethod
    def saying(cls, template: ChatTemplate, *texts: str) -> ScriptedEngine:
        """Responses with their turn ends, the last one again and again."""
        return cls(
            lambda request: (
                [*template.content(texts[min(request, len(texts) - 1)]), template.turn_end],
                True,
            )
        )

    def submit(self, request: int, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        assert request == len(self.prompts), "request numbers rise one by one"
        self.prompts.append(list(prompt_ids))
        self.samplings.append(sampling)
        self._waiting.append(request)

    def poll(self) -> list[Completion]:
        waiting, self._waiting = self._waiting, []
        return [self._complete(request) for request in waiting]

    def _complete(self, request: int) -> Completion:
        ids, stopped = self._reply(request)
        given = tuple(ids)[: self.samplings[request].max_tokens]
        logprobs = tuple(-0.1 * (position + 1) for position in range(len(given)))
        return Completion(request, given, logprobs, stopped and len(given) == len(ids))


def differences(one: list[list[float]], other: list[list[float]]) -> float:
    """Largest |difference| between two ragged lists of log-probs."""
    assert [len(row) for row in one] == [len(row) for row in other]
    return max(
        abs(a - b) for left, right in zip(one, other, strict=True) for a, b in zip(left, right, strict=True)
    )


def raised_message(kind: type[Exception], function: Callable[[], Any]) -> str:
    """Text of the exception of ``kind`` that ``function`` must raise."""
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


TURN_ROW: dict[str, Any] = {
    "iteration": 0,
    "policy_step": 0,
    "environment": "frozen_lake",
    "split": "train",
    "stream": "train",
    "group": 0,
    "member": 0,
    "turn": 0,
    "instance_seed": 11,
    "dynamics_seed": 12,
    "sampling_seed": 13,
    "temperature": 1.0,
    "top_p": 1.0,
    "observation": "P_G",
    "context_ids": [1, 2, 3],
    "response": "<answer>Right</answer>",
    "response_ids": [4, 5],
    "response_logprobs": [-0.5, -1.5],
    "stop_reason": "stop",
    "thought": "",
    "actions": ["Right"],
    "executed": ["Right"],
    "format_valid": True,
    "reward": 0.0,
    "effective": 1,
    "next_observation": "_PG",
    "terminated": False,
    "truncated": False,
    "success": False,
    "trajectory_stop": "turn_limit",
    "error": "",
    "info": "{}",
    "schema_version": SCHEMA_VERSION,
}


def turn_row(**changes: Any) -> dict[str, Any]:
    """One row of the table of turns."""
    assert changes.keys() <= TURN_ROW.keys(), changes.keys() - TURN_ROW.keys()
    return TURN_ROW | changes


def turns_table(*rows: dict[str, Any]) -> pa.Table:
    """Rows of :func:`turn_row` as the table that a rollout writes."""
    return pa.Table.from_pylist(list(rows), schema=TURNS)
