"""Advantages and losses."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from starpo.config.section import Section


class AlgorithmConfig(Section):
    """Advantages and losses (paper, section 2)."""

    estimator: str = "gae"
    """``gae``, ``bilevel_gae``, ``grpo``, ``dr_grpo``, ``rloo``, ``reinforce_plus_plus``,
    ``reinforce_plus_plus_baseline``, ``gigpo`` or ``module:function``."""
    estimator_parameters: dict[str, Any] = Field(default_factory=dict)
    """Its keyword arguments, such as gamma, lam, whiten."""
    policy_loss: str = "ppo"
    """``ppo``, ``gspo`` or ``module:function``."""
    policy_loss_parameters: dict[str, Any] = Field(default_factory=dict)
    """Its keyword arguments, such as clip_low, clip_high, dual_clip."""
    value_clip: float | None = Field(0.5, gt=0)
    """Largest change of a value prediction that the value loss rewards; null: none."""
    entropy_coefficient: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""
    kl_coefficient: float = Field(0.0, ge=0)
    """Weight of the KL penalty to the first policy, per nat; 0: no reference model."""
    kl_estimator: Literal["k1", "abs", "k2", "k3"] = "k3"
    """Estimator of that KL; in the loss not k1, whose gradient is 0 on average."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Whether the penalty is a term of the loss or is taken off the reward of each sampled token."""
    kl_target: float | None = Field(None, gt=0)
    """KL that an adaptive coefficient steers towards, nats per token; null: the coefficient stays fixed."""
    kl_horizon: int | None = Field(None, gt=0)
    """Trajectories over which a lasting error of 20 % changes the adaptive coefficient by 20 %; with kl_target."""
    importance_cap: float | None = Field(None, gt=0)
    """Cap of the weight p(learner) / p(engine) that corrects for an engine whose log-probs differ from the
    learner's (truncated importance sampling); needs learner.old_logprobs = recompute; null: off."""
    response_mask: bool = True
    """Learn from sampled tokens only. false is an ablation: every token after a trajectory's first is trained
    as if the policy had written it; needs learner.old_logprobs = recompute."""
    aggregation: Literal[
        "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
    ] = "token-mean"
    """How token losses become one number."""
    length_norm: int | None = Field(None, gt=0)
    """Tokens that seq-mean-token-sum-norm divides each sequence's sum by; null for the other aggregations."""

    @model_validator(mode="after")
    def _makes_sense(self) -> AlgorithmConfig:
        if self.kl_target is not None and not self.kl_coefficient:
            raise ValueError(
                f"kl_target = {self.kl_target:g} with kl_coefficient = 0: an adaptive coefficient starts above 0; "
                "set kl_coefficient, for example 0.001, or kl_target = null"
            )
        if (self.kl_target is None) != (self.kl_horizon is None):
            raise ValueError(
                f"kl_target = {self.kl_target} with kl_horizon = {self.kl_horizon}: an adaptive coefficient needs "
                "both (a horizon of 10000 is common), a fixed one neither"
            )
        if self.kl_in == "loss" and self.kl_estimator == "k1" and self.kl_coefficient:
            raise ValueError(
                "kl_estimator = 'k1' with kl_in = 'loss': its gradient is 0 on average, so nothing would hold the "
                "policy; choose k2 or k3, or kl_in = reward"
            )
        constant = self.aggregation == "seq-mean-token-sum-norm"
        if constant and self.length_norm is None:
            raise ValueError(
                "aggregation = 'seq-mean-token-sum-norm' needs length_norm, a constant number of tokens: "
                "agent.max_turns times agent.max_tokens_per_turn, for example"
            )
        if self.length_norm is not None and not constant:
            raise ValueError(
                f"length_norm = {self.length_norm} has no effect with aggregation = {self.aggregation!r}; set it "
                "to null or aggregation = seq-mean-token-sum-norm"
            )
        return self
