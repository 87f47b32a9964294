"""The learner: actor and critic under DeepSpeed, and one StarPO update from scored trajectories.

Reads like Algorithm 1 of the paper with the choices of StarPO-S: values, advantages over sampled tokens, then
``epochs`` passes of clipped policy steps and value steps. Tensors of a whole iteration stay on the CPU; only
micro-batches visit the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.kl import token_kl
from starpo.algorithms.masking import aggregate, masked_mean
from starpo.algorithms.registry import advantage_estimator, policy_loss_function
from starpo.algorithms.value_loss import value_loss
from starpo.config import AlgorithmConfig, LearnerConfig
from starpo.learning.batching import Sequences, micro_batches, mini_batches
from starpo.learning.deepspeed_engine import TrainedModule, learner_device
from starpo.learning.models import Actor, Critic
from starpo.learning.policy import Policy, contiguous, first_policy
from starpo.seeds import Purpose, SeedKey


@dataclass(frozen=True)
class UpdateResult:
    """What one iteration's update did."""

    metrics: dict[str, float]
    """Means over the iteration, see the glossary of metrics."""
    advantages: Tensor
    """float32 [N, T] as used."""
    values: Tensor
    """float32 [N, T] before the update, 0 without a critic."""
    learner_logp: Tensor
    """float32 [N, T] at each trajectory's first pass."""


class Learner:
    """Actor (and critic) ready to continue from a stored policy."""

    def __init__(
        self, policy: Policy, config: LearnerConfig, algorithm: AlgorithmConfig, *, temperature: float
    ) -> None:
        from transformers import AutoModelForCausalLM  # noqa: PLC0415

        self._config = config
        self._algorithm = algorithm
        self._temperature = temperature
        self._device = learner_device(config)
        self._estimator = advantage_estimator(algorithm.estimator, **algorithm.estimator_parameters)
        self._policy_loss = policy_loss_function(algorithm.policy_loss, **algorithm.policy_loss_parameters)
        dtype = getattr(torch, config.dtype)

        def causal_model(directory: Path = policy.model_directory) -> Any:
            model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)
            if config.gradient_checkpointing:
                model.gradient_checkpointing_enable()
            return model

        self._actor = TrainedModule(Actor(causal_model()), config.actor, config)
        self._critic: TrainedModule | None = None
        if algorithm.uses_critic:
            trunk = causal_model()
            width = int(trunk.config.hidden_size)
            self._critic = TrainedModule(Critic(trunk.get_decoder(), width).to(dtype), config.critic, config)
        self._reference: nn.Module | None = None
        if algorithm.kl_coefficient:
            reference = causal_model(first_policy(policy).model_directory)
            self._reference = Actor(reference).to(self._device).eval().requires_grad_(False)
        self.holds = ""
        self.restore(policy)

    def restore(self, policy: Policy) -> None:
        """Take over a stored policy's weights, moments and counters, unless they are already here."""
        if self.holds == policy.identity:
            return
        weights = policy.tensors("weights") or {}
        counters = policy.counters
        actor_weights = {f"model.{name}": tensor for name, tensor in weights.items()}
        self._actor.restore(actor_weights, policy.tensors("actor_moments"), counters["actor_steps"])
        critic = policy.tensors("critic")
        if self._critic is not None and critic is not None:
            self._critic.restore(critic, policy.tensors("critic_moments"), counters["critic_steps"])
        self.holds = policy.identity

    def weights(self) -> dict[str, Tensor]:
        """Float32 masters of the actor, named as in the Hugging Face model."""
        return contiguous({name.removeprefix("model."): t for name, t in self._actor.weights().items()})

    def parts(self) -> dict[str, dict[str, Tensor]]:
        """Optimizer moments and critic, for a complete learner state."""
        parts = {"actor_moments": contiguous(self._actor.moments())}
        if self._critic is not None:
            parts["critic"] = contiguous(self._critic.weights())
            parts["critic_moments"] = contiguous(self._critic.moments())
        return parts

    def counters(self) -> dict[str, int]:
        """Optimizer steps done."""
        return {"actor_steps": self._actor.steps, "critic_steps": self._critic.steps if self._critic else 0}

    @torch.no_grad()
    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs (T = 1) of every token after the first, as the engine's ``score``."""
        rows = []
        for ids in sequences:
            tokens = torch.tensor([list(ids)], device=self._device)
            mask = torch.ones_like(tokens, dtype=torch.bool)
            mask[:, 0] = False
            logp, _ = self._actor(tokens, mask)
            rows.append(logp[0, 1:].float().cpu().tolist())
        return rows

    def update(
        self, batch: Sequences, *, seed: int, iteration: int, after: Callable[[], None] | None = None
    ) -> UpdateResult:
        """One iteration's passes over ``batch``. ``after`` is called when the weights are final."""
        config, mask = self._config, batch.mask
        values = self._values(batch) if self._critic is not None else torch.zeros_like(batch.old_logp)
        estimate = self._estimator(
            AdvantageBatch(
                mask=mask,
                turn_index=batch.turn_index,
                turn_rewards=batch.turn_rewards,
                turn_mask=batch.turn_mask,
                group_ids=batch.group_ids,
                values=values if self._critic is not None else None,
                anchors=batch.anchors,
            )
        )
        advantages = estimate.advantages
        old_logp = batch.old_logp if config.old_logprobs == "rollout" else self._logp(self._actor, batch)
        reference = self._logp(self._reference, batch) if self._reference is not None else None
        meter = _Meter()
        first_logp = torch.zeros_like(old_logp)
        learn_actor = iteration >= config.critic_warmup or self._critic is None
        shuffle = SeedKey(seed, Purpose.SHUFFLE, iteration=iteration).generator()
        stopped = False
        for epoch in range(config.epochs):
            for number, rows in enumerate(mini_batches(len(batch.keys), config.mini_batches, shuffle)):
                fresh = epoch == 0 and number == 0
                if learn_actor and not stopped:
                    step = self._actor_step(batch, rows, advantages, old_logp, reference, meter)
                    if epoch == 0:
                        first_logp[rows] = step.logp[rows]
                    if fresh:
                        _record_mismatch(meter, step.logp[rows], batch.old_logp[rows], mask[rows])
                    stopped = config.target_kl is not None and step.kl > config.target_kl
                if self._critic is not None:
                    self._critic_step(batch, rows, values, estimate.returns, meter)
        if not learn_actor:
            first_logp = self._logp(self._actor, batch)
            _record_mismatch(meter, first_logp, batch.old_logp, mask)
        metrics = meter.means()
        metrics["trained_tokens"] = int(mask.sum())
        metrics["trained_trajectories"] = len(batch.keys)
        metrics["padding_share"] = 1.0 - meter.real_tokens / max(1, meter.padded_tokens)
        metrics["early_stop"] = float(stopped)
        if self._critic is not None:
            metrics["explained_variance"] = _explained_variance(values[mask], estimate.returns[mask])
            metrics["value_mean"] = float(masked_mean(values, mask))
        if after is not None:
            after()
        return UpdateResult(metrics, advantages, values, first_logp)

    def _actor_step(
        self,
        batch: Sequences,
        rows: np.ndarray,
        advantages: Tensor,
        old_logp: Tensor,
        reference: Tensor | None,
        meter: _Meter,
    ) -> _ActorStep:
        algorithm = self._algorithm
        total_tokens, total_rows = _totals(batch.mask[rows])
        logps = torch.zeros_like(old_logp)
        kl_sum = 0.0
        parts = list(micro_batches(rows, batch.lengths, self._config.micro_batch_tokens))
        for part, width in parts:
            meter.count_padding(batch.lengths[part], width)
            ids, mask, advantage, old = self._move(
                width, part, batch.token_ids, batch.mask, advantages, old_logp
            )
            logp, entropy = self._actor(ids, mask, self._temperature)

            def mean(loss: Tensor, mask: Tensor = mask) -> Tensor:
                return aggregate(
                    loss, mask, algorithm.aggregation, total_tokens=total_tokens, total_sequences=total_rows
                )

            surrogate = self._policy_loss(logp, old, advantage, mask)
            policy, bonus = mean(surrogate.loss), mean(entropy)
            loss = policy - algorithm.entropy_coefficient * bonus
            if reference is not None:
                (base,) = self._move(width, part, reference)
                penalty = mean(token_kl(logp, base, mask, algorithm.kl_estimator))
                loss = loss + algorithm.kl_coefficient * penalty
                meter.add("kl_to_base", float(penalty.detach()))
            self._actor.backward(loss, last=part is parts[-1][0])
            with torch.no_grad():
                kl = float(token_kl(old, logp, mask, "k3").sum()) / total_tokens
                kl_sum += kl
                meter.add("policy_loss", float(policy))
                meter.add("entropy", float(entropy.sum()) / total_tokens)
                meter.add("clip_high_share", float(surrogate.clipped_high.sum()) / total_tokens)
                meter.add("clip_low_share", float(surrogate.clipped_low.sum()) / total_tokens)
                meter.add("approx_kl", kl)
                logps[part, :width] = logp.float().cpu()
        norm, rate = self._actor.step()
        meter.add("gradient_norm", norm)
        meter.add("learning_rate", rate)
        meter.close_step("actor")
        return _ActorStep(logps, kl_sum)

    def _critic_step(
        self, batch: Sequences, rows: np.ndarray, values: Tensor, returns: Tensor, meter: _Meter
    ) -> None:
        assert self._critic is not None
        total_tokens, _ = _totals(batch.mask[rows])
        parts = list(micro_batches(rows, batch.lengths, self._config.micro_batch_tokens))
        for part, width in parts:
            ids, mask, old, target = self._move(width, part, batch.token_ids, batch.mask, values, returns)
            step = value_loss(self._critic(ids, mask), old, target, mask, clip=self._algorithm.value_clip)
            loss = aggregate(step.loss, mask, total_tokens=total_tokens)
            self._critic.backward(loss, last=part is parts[-1][0])
            meter.add("value_loss", float(loss.detach()))
            meter.add("value_clip_share", float(step.clipped.sum()) / total_tokens)
        norm, _ = self._critic.step()
        meter.add("critic_gradient_norm", norm)
        meter.close_step("critic")

    @torch.no_grad()
    def _values(self, batch: Sequences) -> Tensor:
        assert self._critic is not None
        return self._forward(batch, self._critic)

    @torch.no_grad()
    def _logp(self, actor: Any, batch: Sequences) -> Tensor:
        return self._forward(batch, lambda ids, mask: actor(ids, mask, self._temperature)[0])

    def _forward(self, batch: Sequences, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        result = torch.zeros_like(batch.old_logp)
        every = np.arange(len(batch.keys))
        for part, width in micro_batches(every, batch.lengths, self._config.micro_batch_tokens):
            ids, mask = self._move(width, part, batch.token_ids, batch.mask)
            result[part, :width] = function(ids, mask).float().cpu()
        return result

    def _move(self, width: int, rows: np.ndarray, *tensors: Tensor) -> Iterator[Tensor]:
        return (tensor[rows, :width].to(self._device) for tensor in tensors)


@dataclass(frozen=True)
class _ActorStep:
    logp: Tensor
    kl: float


class _Meter:
    """Sums over the micro-batches of a step, means over the steps of an iteration."""

    def __init__(self) -> None:
        self._open: dict[str, float] = {}
        self._closed: dict[str, list[float]] = {}
        self._count: dict[str, int] = {}
        self.real_tokens = 0
        self.padded_tokens = 0

    def add(self, name: str, value: float) -> None:
        self._open[name] = self._open.get(name, 0.0) + value

    def close_step(self, kind: str) -> None:
        self._count[kind] = self._count.get(kind, 0) + 1
        for name, value in self._open.items():
            self._closed.setdefault(name, []).append(value)
        self._open = {}

    def count_padding(self, lengths: np.ndarray, width: int) -> None:
        self.real_tokens += int(lengths.sum())
        self.padded_tokens += len(lengths) * width

    def means(self) -> dict[str, float]:
        means = {name: float(np.mean(values)) for name, values in self._closed.items()}
        return means | {f"{kind}_steps": float(count) for kind, count in self._count.items()}


def _totals(mask: Tensor) -> tuple[int, int]:
    return max(1, int(mask.sum())), max(1, int(mask.any(1).sum()))


def _record_mismatch(meter: _Meter, learner: Tensor, engine: Tensor, mask: Tensor) -> None:
    """Engine against learner at the same weights: the running proof that both hold the same policy."""
    difference = (learner - engine).abs()[mask]
    meter.add("logprob_difference_mean", float(difference.mean()))
    meter.add("logprob_difference_max", float(difference.max()))
    meter.close_step("comparison")


def _explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns); 0 where returns do not vary."""
    spread = float(returns.var()) if len(returns) > 1 else 0.0
    return 1.0 - float((returns - values).var()) / spread if spread > 0 else 0.0
