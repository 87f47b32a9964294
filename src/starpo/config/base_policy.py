"""Where the first policy comes from."""

from __future__ import annotations

from pydantic import Field, model_validator

from starpo.config.section import Section, Seed


class WarmStartStage(Section):
    """One part of the warm start, with demonstrations of one kind."""

    demonstrations: int = Field(gt=0)
    """Episodes, each seen once."""
    careful_share: float = Field(1.0, ge=0, le=1)
    """Probability that a demonstrated turn thinks and follows the solver; the rest is hasty: an empty thought
    and random actions."""
    malformed_share: float = Field(0.0, ge=0, lt=1)
    """Probability of a turn with a broken format."""
    learning_rate: float = Field(gt=0)
    """Peak learning rate; warm-up, then cosine to zero."""


class BasePolicyConfig(Section):
    """Where the initial policy comes from."""

    UNWRITTEN = frozenset({"fit_pretrained"})

    path: str | None = None
    """A Hugging Face model directory, a GGUF file or ``package:NAME`` for the GGUF file inside an installed Python
    package; null: build and warm-start the embedded policy."""
    seed: Seed = 0
    """Seed of weights and demonstrations, apart from the run's seed so that runs share a base."""
    hidden_size: int = Field(64, gt=0)
    """Width."""
    layers: int = Field(3, gt=0)
    """Transformer layers."""
    heads: int = Field(2, gt=0)
    """Attention heads of 32 dimensions each, whatever the width."""
    vocabulary: int = Field(420, ge=280)
    """Largest tokenizer size: 256 bytes, special tokens, merges; the harness's phrases come on top."""
    batch_tokens: int = Field(gt=0)
    """Padded tokens of one warm-start step; many small steps teach more than few large ones."""
    max_plan: int = Field(3, gt=0)
    """Demonstrated answers hold 1 to this many actions, uniformly."""
    stages: list[WarmStartStage] = Field(min_length=1)
    """Parts of the warm start in order, such as skill first, then habit."""
    fit_pretrained: bool = False
    """Warm-start the model at ``path`` too, with ``stages`` made for it; false: it is taken as it is."""

    @model_validator(mode="after")
    def _fits_a_pretrained_model(self) -> BasePolicyConfig:
        if self.fit_pretrained and self.path is None:
            raise ValueError("fit_pretrained = true needs a path; the embedded policy is always warm-started")
        return self
