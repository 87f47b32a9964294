"""Typed parameters: one frozen model per section of ``conf/*/parameters*.yml``.

A misspelt key, a value out of range or an impossible combination fails before any work, with the key, the value
and the remedy.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from starpo.errors import UserError


class Section(BaseModel):
    """Base of all sections: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class RunConfig(Section):
    """Identity and length of a run."""

    name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Folder name of the run in every data layer; null: ``<pipeline>-<environment>-seed<seed>``."""
    seed: int = Field(0, ge=0)
    """Root of every random draw."""
    iterations: int = Field(gt=0)
    """Number of rollout-update iterations; may grow on an existing run."""
    source: str | None = None
    """What a stage run alone works on: ``RUN@STEP``, ``RUN@latest``; null: the newest there is."""
    fork_from: str | None = None
    """``RUN@ITERATION``: start from that run's learner state instead of the base policy."""
    checkpoint_every: int = Field(1, gt=0)
    """Iterations between complete learner states on disk."""
    keep_last: int = Field(2, gt=0)
    """Complete learner states kept; older ones keep their manifest only. Evaluated policies are kept as models."""
    threads: int | None = Field(None, gt=0)
    """CPU threads of torch and vLLM; null: all cores. Models below a million parameters run faster on one."""
    max_skipped: int = Field(5, gt=0)
    """Stop after this many iterations in a row in which every group was filtered."""


#: vLLM samples up to temperature 2.
Temperature = Annotated[float, Field(gt=0, le=2)]

#: null drops the arguments that a lower configuration layer gave.
Arguments = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]


class EnvironmentConfig(Section):
    """The training task."""

    name: str
    """Registered name or ``module:Class``."""
    arguments: Arguments = Field(default_factory=dict)
    """Keyword arguments of the environment; null for none."""


class AgentConfig(Section):
    """The harness: how text goes in and actions come out. It is part of the policy."""

    think: bool = True
    """Ask for ``<think>…</think>`` before the answer and require it for a valid format."""
    prefill_think: bool = False
    """Put the opening ``<think>`` into the context instead of letting the policy sample it."""
    action_separator: str = "||"
    """Between actions inside ``<answer>``."""
    max_turns: int = Field(5, gt=0)
    """Generation spans per trajectory."""
    max_actions_per_turn: int = Field(5, gt=0)
    """Executed actions per turn; more are cut."""
    max_actions: int = Field(10, gt=0)
    """Executed actions per trajectory."""
    max_tokens_per_turn: int = Field(gt=0)
    """Sampled tokens per turn."""
    max_tokens_per_trajectory: int = Field(gt=0)
    """Context and sampled tokens of a whole trajectory; the engine's context length."""

    @model_validator(mode="after")
    def _turn_fits(self) -> AgentConfig:
        if self.max_tokens_per_turn >= self.max_tokens_per_trajectory:
            raise ValueError(
                f"max_tokens_per_turn = {self.max_tokens_per_turn} does not fit into "
                f"max_tokens_per_trajectory = {self.max_tokens_per_trajectory}; lower the first or raise the second"
            )
        if not self.think and self.prefill_think:
            raise ValueError("prefill_think = true needs think = true")
        return self


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
    """Free the engine's GPU memory during updates (vLLM sleep mode)."""
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
    """Nucleus sampling; log-probs are of the truncated distribution."""


class RewardConfig(Section):
    """From turns to returns."""

    terms: dict[str, dict[str, float]] = Field(min_length=1)
    """Reward terms by name (or ``module:function``) with their keyword arguments, summed per turn.
    A format penalty must exceed what a turn's steps can cost, or saying nothing pays."""


class FilterConfig(Section):
    """Which groups are learned from (paper, section 3.2)."""

    mode: Literal["std", "low_std", "top_p", "threshold"] = "std"
    """How groups are ranked by in-group return spread; see ``starpo.algorithms.filters``."""
    keep_ratio: float = Field(gt=0, le=1)
    """Share of groups kept, highest spread first; 1 keeps every group with spread."""
    min_std: float = Field(0.0, ge=0)
    """Groups whose spread is not above this are dropped, in units of the return."""
    keep_zero_spread: bool = False
    """Keep groups whose members all got the same return; with keep_ratio 1 the filter is off."""


class AlgorithmConfig(Section):
    """Advantages and losses (paper, section 2)."""

    estimator: str = "gae"
    """``gae``, ``bilevel_gae``, ``grpo``, ``rloo``, … or ``module:function``."""
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
    """Weight of the KL penalty to the first policy, in the loss; 0: no reference model."""
    kl_estimator: Literal["k1", "abs", "k2", "k3"] = "k3"
    """Estimator of that KL."""
    aggregation: Literal[
        "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
    ] = "token-mean"
    """How token losses become one number."""

    @property
    def uses_critic(self) -> bool:
        """Whether advantages come from a critic."""
        return self.estimator in {"gae", "bilevel_gae"}


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
    mini_batches: int = Field(1, gt=0)
    """Optimizer steps per pass."""
    micro_batch_tokens: int = Field(16384, gt=0)
    """Largest padded token count of one forward pass."""
    critic_warmup: int = Field(0, ge=0)
    """First iterations in which only the critic learns."""
    target_kl: float | None = Field(None, gt=0)
    """End an iteration's passes when approximate KL to the rollout policy exceeds this; null: never."""
    old_logprobs: Literal["rollout", "recompute"] = "rollout"
    """Denominator of the ratio: the engine's log-probs or the learner's own."""


class Suite(Section):
    """A fixed set of evaluation prompts."""

    environment: str | None = None
    """Registered environment; null: the training environment with its arguments."""
    arguments: Arguments = Field(default_factory=dict)
    """Arguments of an environment named here; null for none."""
    split: Literal["validation", "test"] = "test"
    """Instances are drawn from this split, disjoint from training."""
    prompts: int = Field(1024, gt=0)
    """Number of prompts; the first 256 are the paper-sized suite."""

    @model_validator(mode="after")
    def _arguments_have_an_environment(self) -> Suite:
        if self.arguments and self.environment is None:
            raise ValueError(
                "arguments need an environment beside them; without one the training task is used"
            )
        return self


class EvaluationConfig(Section):
    """What is measured, when."""

    seed: int = Field(0, ge=0)
    """Chooses the prompts and the luck, common to all policies; independent of the run's seed."""
    every: int = Field(gt=0)
    """Iterations between periodic evaluations."""
    periodic: list[str]
    """Suites of the periodic evaluation."""
    final: list[str]
    """Suites on which the first and the last policy are compared."""
    suites: dict[str, Suite]
    """All suites by name."""
    temperatures: list[Temperature] = Field([0.5], min_length=1)
    """Sampling temperatures of the final evaluation; the first is also the periodic one."""
    samples: int = Field(1, gt=0)
    """Trajectories per prompt; more than one gives pass@k."""

    def task(self, suite: str, training: EnvironmentConfig) -> EnvironmentConfig:
        """The environment of ``suite``."""
        chosen = self.suites[suite]
        if chosen.environment is None:
            return training
        return EnvironmentConfig(name=chosen.environment, arguments=chosen.arguments)

    @model_validator(mode="after")
    def _suites_known(self) -> EvaluationConfig:
        for key, names in (("periodic", self.periodic), ("final", self.final)):
            for name in names:
                if name not in self.suites:
                    raise ValueError(
                        f"{key} names the suite {name!r}, which is not among {sorted(self.suites)}"
                    )
        return self


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

    path: str | None = None
    """A Hugging Face model directory; null: build and warm-start the embedded policy."""
    seed: int = Field(0, ge=0)
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


class Parameters(Section):
    """All sections of a run."""

    run: RunConfig
    environment: EnvironmentConfig
    agent: AgentConfig
    engine: EngineConfig
    rollout: RolloutConfig
    reward: RewardConfig
    filter: FilterConfig
    algorithm: AlgorithmConfig
    learner: LearnerConfig
    evaluation: EvaluationConfig
    base_policy: BasePolicyConfig

    @model_validator(mode="after")
    def _combinations(self) -> Parameters:
        alone = self.rollout.group_size == 1
        if alone and not self.algorithm.uses_critic:
            raise ValueError(
                f"rollout.group_size = 1 with algorithm.estimator = {self.algorithm.estimator!r}: group-relative "
                "advantages need at least 2 members; raise group_size or use estimator gae"
            )
        if alone and self.filter.keep_ratio < 1:
            raise ValueError(
                "rollout.group_size = 1 with filter.keep_ratio < 1: a single trajectory has no spread; "
                "raise group_size or set keep_ratio = 1"
            )
        return self


def parse_parameters(raw: dict[str, Any]) -> Parameters:
    """Validate the resolved parameters; raises ``UserError`` with one line per mistake."""
    known = {key: value for key, value in raw.items() if key not in {"presets"}}
    try:
        return Parameters.model_validate(known)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            key = ".".join(str(part) for part in problem["loc"])
            value = problem.get("input")
            shown = f" = {value!r}" if key and not isinstance(value, dict) else ""
            message = problem["msg"].removeprefix("Value error, ")
            if problem["type"] == "extra_forbidden":
                message = f"unknown parameter; known here: {', '.join(_known_keys(problem['loc'][:-1]))}"
            lines.append(f"  {key}{shown}: {message}" if key else f"  {message}")
        raise UserError(
            "invalid parameters:\n"
            + "\n".join(lines)
            + "\nCorrect conf/*/parameters*.yml or the --params option."
        ) from None


def _known_keys(path: tuple[Any, ...]) -> list[str]:
    model: Any = Parameters
    for part in path:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[part].annotation
    return sorted(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


#: Parameters that may change on an existing run because they only extend or observe it.
EXTENDABLE = {
    ("run", "iterations"),
    ("run", "threads"),
    ("run", "keep_last"),
    ("run", "source"),
    ("run", "name"),
}


def flatten(tree: dict[str, Any], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """``{"a": {"b": 1}}`` to ``{("a", "b"): 1}``."""
    flat: dict[tuple[str, ...], Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, (*prefix, str(key)))
        else:
            flat[(*prefix, str(key))] = value
    return flat


def fingerprint(tree: Any) -> str:
    """First 12 hex digits of the SHA-256 of the canonical JSON of ``tree``."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True, default=str).encode()).hexdigest()[:12]
