"""Generation: the engine, and how many trajectories it samples."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from starpo.config.section import Section, Temperature


class EngineConfig(Section):
    """Where and how generation runs."""

    kind: Literal["vllm", "transformers"] = "vllm"
    """``transformers`` is the reference engine: slow, runs everywhere."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Weights and activations of the engine."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto``: a GPU where torch sees one."""
    tensor_parallel_size: int = Field(1, gt=0)
    """GPUs that share one engine."""
    gpu_memory_utilization: float = Field(0.5, gt=0, lt=1)
    """Share of a GPU's memory for vLLM (weights and KV cache)."""
    kv_cache_gib: float = Field(1.0, gt=0)
    """KV cache on CPU, GiB; fixed, because scheduling and so rounding depend on it."""
    max_sequences: int = Field(256, gt=0)
    """Sequences decoded together."""
    enforce_eager: bool = True
    """No graph capture or compilation in vLLM."""
    sleep: bool = False
    """Free the engine's GPU memory during updates (vLLM's sleep mode, level 1); its weights wait on the host."""
    sync_tolerance: float = Field(1e-3, gt=0)
    """Largest |log-prob difference| engine/learner on the probe after a weight sync, nats."""


class RolloutConfig(Section):
    """How many trajectories an iteration draws and how tokens are sampled."""

    groups: int = Field(gt=0)
    """Prompts (instances) per iteration."""
    group_size: int = Field(gt=0)
    """Trajectories per prompt."""
    temperature: Temperature = 1.0
    """Softmax temperature while sampling. Ratios are unbiased at 1 only."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling; log-probs are of the truncated distribution, so that below 1 learner.old_logprobs must be
    recompute."""
