"""Actor and critic, their optimizers and adapters."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from starpo.config.section import Section, Seed


class OptimizerConfig(Section):
    """AdamW."""

    learning_rate: float = Field(gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam moments."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    gradient_clip: float = Field(1.0, gt=0)
    """Largest global gradient norm."""
    warmup_updates: int = Field(0, ge=0)
    """Optimizer steps of linear warm-up."""
    decay_updates: int | None = Field(None, gt=0)
    """Optimizer steps until linear decay reaches 0; null: constant."""


class LoraConfig(Section):
    """Low-rank adapters: what is trained instead of all weights."""

    rank: int = Field(8, gt=0)
    """Inner dimension of the update of each weight matrix."""
    alpha: int = Field(16, gt=0)
    """Updates are scaled by alpha / rank."""
    target_modules: Literal["all-linear"] | list[str] = "all-linear"
    """Names of the adapted modules; ``all-linear``: every linear layer but the output head."""
    seed: Seed = 0
    """Seed of the initial adapters, apart from the run's seed."""


class LearnerConfig(Section):
    """The DeepSpeed actor and critic."""

    actor: OptimizerConfig
    critic: OptimizerConfig
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute type; masters and moments are float32 always."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto``: a GPU where torch sees one."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """DeepSpeed ZeRO stage."""
    offload_optimizer: bool = False
    """Keep optimizer states in host memory (ZeRO 1 to 3, GPU)."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    epochs: int = Field(1, gt=0)
    """Passes over an iteration's kept trajectories."""
    rows_per_step: int = Field(32, gt=0)
    """Trajectories per optimizer step: a filter makes fewer steps, not smaller ones. What is left over makes a last,
    shorter step, whose loss is weighted by its share of these rows."""
    micro_batch_tokens: int = Field(16384, gt=0)
    """Most trajectory tokens of one forward pass; fewer take less memory, more share more beginnings."""
    critic_warmup: int = Field(0, ge=0)
    """First iterations in which only the critic learns."""
    target_kl: float | None = Field(None, gt=0)
    """The actor's steps of an iteration end before one whose trajectories have an approximate KL to the rollout policy
    above this, nats per token; costs a forward pass per step; null: never."""
    max_bad_steps: int = Field(3, gt=0)
    """Optimizer steps in a row whose loss or gradient is not finite, and which are therefore not taken, that end the
    run; may change on an existing run."""
    old_logprobs: Literal["rollout", "recompute"] = "rollout"
    """Denominator of the ratio: the engine's log-probs or the learner's own."""
    lora: LoraConfig | None = None
    """Train adapters and the critic's head alone, the rest frozen; null: all weights."""
