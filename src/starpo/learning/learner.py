"""The learner: actor and critic under DeepSpeed, and one StarPO update from scored trajectories.

Reads like Algorithm 1 of the paper with the choices of StarPO-S: values, advantages over sampled tokens, then
``epochs`` passes of clipped policy steps and value steps. Tensors of a whole iteration stay on the CPU; only
micro-batches visit the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.gae import Advantages
from starpo.algorithms.kl import token_kl
from starpo.algorithms.masking import aggregate, masked_mean
from starpo.algorithms.registry import PER_TOKEN, advantage_estimator, policy_loss_function
from starpo.algorithms.value_loss import value_loss
from starpo.config.algorithm import AlgorithmConfig
from starpo.config.learner import LearnerConfig
from starpo.heartbeat import beat
from starpo.learning.bad_steps import BadSteps, cause_of, checked_estimate
from starpo.learning.batching import Piece, Sequences, chain_rows, mini_batches, pieces
from starpo.learning.deepspeed_engine import TrainedModule, learner_device
from starpo.learning.kl_penalty import KLPenalty
from starpo.learning.loading import Networks
from starpo.learning.meter import Meter, explained_variance
from starpo.learning.mismatch import corrected_advantages
from starpo.learning.prefix_tree import PrefixTree, prefix_tree
from starpo.learning.response_mask import with_context_tokens
from starpo.seeds import Purpose, SeedKey
from starpo.store.policies import Policy
from starpo.store.policy_state import Adapter, PolicyState


@dataclass(frozen=True)
class UpdateResult:
    """What one iteration's update did."""

    metrics: dict[str, Any]
    """Means over the iteration, see the glossary of metrics."""
    advantages: Tensor
    """float32 [N, T] as estimated."""
    values: Tensor
    """float32 [N, T] before the update, 0 without a critic."""
    learner_logp: Tensor
    """float32 [N, T] at each trajectory's first pass; NaN in a row that none reached (``learner.target_kl``)."""


class Learner:
    """Actor (and critic) ready to continue from a stored policy."""

    def __init__(
        self, policy: Policy, config: LearnerConfig, algorithm: AlgorithmConfig, *, temperature: float
    ) -> None:
        self._config = config
        self._algorithm = algorithm
        self._temperature = temperature
        self._device = learner_device(config)
        self._estimator = advantage_estimator(algorithm.estimator, **algorithm.estimator_parameters)
        self._policy_loss = policy_loss_function(algorithm.policy_loss, **algorithm.policy_loss_parameters)
        self._networks = Networks(policy, config, algorithm)
        self._actor, self._critic = self._networks.actor, self._networks.critic
        self._reference = self._networks.reference
        self._kl = KLPenalty(algorithm)
        self._bad = BadSteps(config.max_bad_steps)
        self._iteration, self._budget = 0, config.micro_batch_tokens
        self._holds = ""
        self.restore(policy)

    def restore(self, policy: Policy) -> None:
        """Take over a stored policy's weights, moments and counters, unless they are already here."""
        if self._holds != policy.identity:
            self._networks.restore(policy)
            self._kl.restore(policy.counters)
            self._bad.restore(policy.counters)
            self._holds = policy.identity

    def hand_over(self, policy: Policy, *, complete: bool, monitor: dict[str, Any]) -> PolicyState:
        """What was learned from ``policy``'s rollouts as the next policy, which is the one held from now on.

        Args:
            policy: the policy that the update began with.
            complete: whether learning can go on from it: with the optimizers' moments and the critic.
            monitor: what the Echo Trap monitor has seen.
        """
        state = policy.trained(
            weights=self.weights(),
            parts=self.parts() if complete else {},
            adapter=self.adapter(),
            counters=self.counters(),
            monitor=monitor,
        )
        self._holds = state.identity
        return state

    def weights(self) -> dict[str, Tensor]:
        """Float32 weights of the policy, named as in the Hugging Face model."""
        return self._networks.weights()

    def adapter(self) -> Adapter | None:
        """The LoRA adapter that the weights are merged with, where one is trained."""
        return self._networks.adapter()

    def parts(self) -> dict[str, dict[str, Tensor]]:
        """Optimizer moments and critic, for a complete learner state."""
        return self._networks.parts()

    def counters(self) -> dict[str, float]:
        """Optimizer steps done, an adaptive KL coefficient, and steps in a row that were not taken."""
        steps = {"actor_steps": self._actor.steps, "critic_steps": self._critic.steps if self._critic else 0}
        return steps | self._kl.counters() | self._bad.counters()

    @torch.no_grad()
    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs (T = 1) of every token after the first, as the engine's ``score``."""
        rows = []
        for ids in sequences:
            tokens = torch.tensor([list(ids)])
            mask = torch.ones_like(tokens, dtype=torch.bool)
            mask[:, 0] = False
            logp, _ = self._actor(prefix_tree(tokens, mask).to(self._device), mask.to(self._device))
            rows.append(logp[0, 1:].float().cpu().tolist())
        return rows

    def update(
        self, batch: Sequences, *, seed: int, iteration: int, micro_batch_tokens: int | None = None
    ) -> UpdateResult:
        """One iteration's passes over ``batch``, with ``micro_batch_tokens`` in the place of the configured ones.

        With ``learner.target_kl`` the actor's steps end before the first one whose trajectories have gone further
        than that from the rollout policy; the step is not taken, and the critic goes on. Before the iteration's first
        step nothing has moved, so it is always tried. A step with a loss or gradient that is not finite is not taken.

        Raises:
            UserError: an estimate is not finite, or too many steps in a row could not be taken.
        """
        self._holds = ""  # what is learned is none of the run's policies until it is handed over
        self._iteration, self._budget = iteration, micro_batch_tokens or self._config.micro_batch_tokens
        self._bad.begin_iteration()
        config, sampled = self._config, batch.mask
        if not self._algorithm.response_mask:
            batch = with_context_tokens(batch)
        mask = batch.mask
        learn_actor = iteration >= config.critic_warmup or self._critic is None
        shuffle = SeedKey(seed, Purpose.SHUFFLE, iteration=iteration).generator()
        passes = [mini_batches(len(batch.keys), config.rows_per_step, shuffle) for _ in range(config.epochs)]
        # The first step computes its own before it changes the weights.
        spared = passes[0][0] if learn_actor and self._first_step_recomputes else np.array([], dtype=np.int64)
        old_logp = self._old_logp(batch, spared)
        reference = self._logp(self._reference, batch) if self._reference is not None else None
        values = self._values(batch) if self._critic is not None else torch.zeros_like(batch.old_logp)
        estimated, returns = self._estimate(batch, values, self._kl.rewards(old_logp, reference, mask))
        advantages = estimated
        corrections: dict[str, float] = {}
        if (cap := self._algorithm.importance_cap) is not None:
            advantages, corrections = corrected_advantages(
                advantages, old_logp, batch.old_logp, sampled, cap=cap
            )
        in_loss = reference if self._kl.in_loss else None
        meter = Meter()
        first_logp = torch.full_like(old_logp, torch.nan)
        stopped = False
        for epoch, parts in enumerate(passes):
            for number, rows in enumerate(parts):
                fresh = epoch == 0 and number == 0
                micro = self._micro_batches(batch, rows)
                if learn_actor and not stopped and not fresh and config.target_kl is not None:
                    stopped = self._distance(batch, rows, old_logp) > config.target_kl
                if learn_actor and not stopped:
                    known = None if fresh and len(spared) else old_logp
                    logp = self._actor_step(batch, micro, advantages, known, in_loss, meter)[rows]
                    if known is None:
                        old_logp[rows] = logp
                    if epoch == 0:
                        first_logp[rows] = logp
                    if fresh:
                        meter.compare(logp, batch.old_logp[rows], sampled[rows])
                if self._critic is not None:
                    self._critic_step(batch, micro, values, returns, meter)
        if not learn_actor:
            first_logp = old_logp if config.old_logprobs == "recompute" else self._logp(self._actor, batch)
            meter.compare(first_logp, batch.old_logp, sampled)
        metrics = meter.means() | corrections | self._bad.metrics()
        metrics |= self._kl.close_iteration(old_logp, reference, mask, adapt=learn_actor)
        metrics["trained_tokens"] = int(mask.sum())
        metrics["trained_trajectories"] = len(batch.keys)
        metrics["early_stop"] = float(stopped)
        if self._critic is not None:
            metrics["explained_variance"] = explained_variance(values[mask], returns[mask])
            metrics["value_mean"] = float(masked_mean(values, mask))
        return UpdateResult(metrics, estimated, values, first_logp)

    @property
    def _first_step_recomputes(self) -> bool:
        """Whether the first step's own log-probs may serve as its old ones: they are the same, but known later
        than rewards and advantages, which may depend on them."""
        in_reward = self._reference is not None and not self._kl.in_loss
        early = in_reward or self._algorithm.importance_cap is not None
        return self._config.old_logprobs == "recompute" and not early

    def _old_logp(self, batch: Sequences, spared: np.ndarray) -> Tensor:
        """Denominators of the ratios, float32 [N, T]; where recomputed, 0 in the rows ``spared``."""
        if self._config.old_logprobs == "rollout":
            return batch.old_logp
        return self._logp(self._actor, batch, np.setdiff1d(np.arange(len(batch.keys)), spared))

    def _estimate(self, batch: Sequences, values: Tensor, kl_rewards: Tensor | None) -> Advantages:
        """Advantages and returns, float32 [N, T]; estimators work in the rewards' float64.

        Raises ``UserError`` where they, or the KL penalty in the reward, are not finite.
        """

        def checked(what: str, found: Tensor) -> Tensor:
            return checked_estimate(what, found.float(), batch.mask, batch.keys, self._iteration)

        if kl_rewards is not None:
            checked(f"the KL penalty in the reward ({self._algorithm.kl_estimator})", kl_rewards)
        estimate = self._estimator(
            AdvantageBatch(
                mask=batch.mask,
                turn_index=batch.turn_index,
                turn_rewards=batch.turn_rewards,
                turn_mask=batch.turn_mask,
                group_ids=batch.group_ids,
                values=values if self._critic is not None else None,
                kl_rewards=kl_rewards,
                anchors=batch.anchors,
            )
        )
        name = f"advantage estimator {self._algorithm.estimator!r}"
        return Advantages(
            checked(name, estimate.advantages), checked(f"{name}, as returns,", estimate.returns)
        )

    def _distance(self, batch: Sequences, rows: np.ndarray, old_logp: Tensor) -> float:
        """Approximate KL (k3) of the rollout policy to the present weights, mean over the tokens of ``rows``, nats."""
        logp, mask = self._logp(self._actor, batch, rows)[rows], batch.mask[rows]
        return float(masked_mean(token_kl(old_logp[rows], logp, mask, "k3"), mask))

    def _actor_step(
        self,
        batch: Sequences,
        parts: list[_MicroBatch],
        advantages: Tensor,
        old_logp: Tensor | None,
        reference: Tensor | None,
        meter: Meter,
    ) -> Tensor:
        """One optimizer step; without ``old_logp`` the ratios are against this pass's own log-probs, which are
        returned, float32 [N, T]."""
        algorithm = self._algorithm
        total_tokens, total_rows = _totals(batch.mask, parts)
        share = self._share(parts)
        logps = torch.zeros_like(batch.old_logp)
        lengths = batch.mask.sum(1)
        cause = ""
        for part in parts:
            meter.count_work(part.tree)
            mask, advantage = self._move(part, batch.mask, advantages)
            tokens = lengths[part.rows].to(self._device)
            logp, entropy = self._actor(part.tree, mask, self._temperature)
            old = logp.detach() if old_logp is None else next(self._move(part, old_logp))

            def mean(loss: Tensor, mask: Tensor = mask, tokens: Tensor = tokens) -> Tensor:
                return aggregate(
                    loss,
                    mask,
                    algorithm.aggregation,
                    lengths=tokens,
                    total_tokens=total_tokens,
                    total_sequences=total_rows,
                    length_norm=algorithm.length_norm,
                )

            surrogate = self._policy_loss(logp, old, advantage, mask)
            terms = {"policy loss": surrogate.loss, "entropy": entropy}
            loss = policy = mean(surrogate.loss)
            if algorithm.entropy_coefficient:
                loss = loss - algorithm.entropy_coefficient * mean(entropy)
            if reference is not None:
                (base,) = self._move(part, reference)
                terms["KL to the first policy"] = token_kl(logp, base, mask, algorithm.kl_estimator)
                penalty = mean(terms["KL to the first policy"])
                loss = loss + self._kl.coefficient * penalty
                meter.add("kl_to_base", penalty.detach())
            cause = self._backward(self._actor, share * loss, terms, mask, part, parts, batch) or cause
            with torch.no_grad():
                meter.add("policy_loss", policy.detach())
                meter.add("entropy", entropy.sum() / total_tokens)
                meter.add("clip_high_share", surrogate.clipped_high.sum() / total_tokens)
                meter.add("clip_low_share", surrogate.clipped_low.sum() / total_tokens)
                meter.add("approx_kl", token_kl(old, logp, mask, "k3").sum() / total_tokens)
                logps[part.rows, part.columns] = logp.detach().cpu()
        norm, rate = self._actor.step()
        if self._bad.note("actor", cause, norm, _keys(batch, parts), self._iteration):
            meter.add("gradient_norm", norm / share)
            meter.add("learning_rate", rate)
            meter.close_step("actor")
        else:
            meter.drop_step()
        return logps

    def _backward(
        self,
        network: TrainedModule,
        loss: Tensor,
        terms: dict[str, Tensor],
        mask: Tensor,
        part: _MicroBatch,
        parts: list[_MicroBatch],
        batch: Sequences,
    ) -> str:
        """Add the gradient of ``loss``; where that is not finite make the whole step's NaN, so that no optimizer takes
        it, and return why: the first of ``terms``, float [B, T], that is to blame."""
        cause = ""
        if not bool(loss.isfinite()):
            cause = cause_of(terms, mask, [batch.keys[row] for row in part.rows])
            loss = loss * torch.nan
        network.backward(loss, last=part is parts[-1])
        beat()
        return cause

    def _share(self, parts: list[_MicroBatch]) -> float:
        """Weight of a step: 1, and less for what is left over, so that all trajectories weigh the same."""
        rows = len(np.unique(np.concatenate([part.rows for part in parts])))
        return rows / self._config.rows_per_step

    def _critic_step(
        self, batch: Sequences, parts: list[_MicroBatch], values: Tensor, returns: Tensor, meter: Meter
    ) -> None:
        assert self._critic is not None
        total_tokens, _ = _totals(batch.mask, parts)
        share = self._share(parts)
        cause = ""
        for part in parts:
            mask, old, target = self._move(part, batch.mask, values, returns)
            predicted = self._critic(part.tree, mask)
            step = value_loss(predicted, old, target, mask, clip=self._algorithm.value_clip)
            loss = aggregate(step.loss, mask, total_tokens=total_tokens)
            terms = {"value loss": step.loss}
            cause = self._backward(self._critic, share * loss, terms, mask, part, parts, batch) or cause
            meter.add("value_loss", loss.detach())
            meter.add("value_clip_share", step.clipped.sum() / total_tokens)
        norm, _ = self._critic.step()
        if self._bad.note("critic", cause, norm, _keys(batch, parts), self._iteration):
            meter.add("critic_gradient_norm", norm / share)
            meter.close_step("critic")
        else:
            meter.drop_step()

    @torch.no_grad()
    def _values(self, batch: Sequences) -> Tensor:
        assert self._critic is not None
        return self._forward(batch, self._critic)

    @torch.no_grad()
    def _logp(self, actor: Any, batch: Sequences, rows: np.ndarray | None = None) -> Tensor:
        return self._forward(batch, lambda tree, mask: actor(tree, mask, self._temperature)[0], rows)

    def _forward(
        self,
        batch: Sequences,
        function: Callable[[PrefixTree, Tensor], Tensor],
        rows: np.ndarray | None = None,
    ) -> Tensor:
        """``function`` of all rows, or of the given ones and 0 in the others; float32 [N, T], on the CPU."""
        result = torch.zeros_like(batch.old_logp)
        for part in self._micro_batches(batch, np.arange(len(batch.keys)) if rows is None else rows):
            (mask,) = self._move(part, batch.mask)
            result[part.rows, part.columns] = function(part.tree, mask).float().cpu()
            beat()
        return result

    def _micro_batches(self, batch: Sequences, rows: np.ndarray) -> list[_MicroBatch]:
        divide = self._algorithm.policy_loss in PER_TOKEN
        return [
            _MicroBatch(piece.rows, piece.columns, prefix_tree(*chain_rows(batch, piece)).to(self._device))
            for piece in pieces(batch, rows, self._budget, divide=divide)
        ]

    def _move(self, part: _MicroBatch, *tensors: Tensor) -> Iterator[Tensor]:
        return (tensor[part.rows, part.columns].to(self._device) for tensor in tensors)


@dataclass(frozen=True)
class _MicroBatch(Piece):
    tree: PrefixTree
    """Of the chains in it."""


def _keys(batch: Sequences, parts: list[_MicroBatch]) -> list[tuple[int, int]]:
    """(group, member) of the trajectories of an optimizer step."""
    return [batch.keys[row] for row in np.unique(np.concatenate([part.rows for part in parts]))]


def _totals(mask: Tensor, parts: list[_MicroBatch]) -> tuple[int, int]:
    """Sampled tokens and trajectories of an optimizer step."""
    mask = mask[np.unique(np.concatenate([part.rows for part in parts]))]
    return max(1, int(mask.sum())), max(1, int(mask.any(1).sum()))
