"""Typed parameters: one frozen model per section of ``conf/*/parameters*.yml``.

A misspelt key, a value out of range or an impossible combination fails before any work, with the key, the value
and the remedy.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
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
    study: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Study that the run is part of: its runs are nested together in MLflow."""
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


class MixtureMember(Section):
    """One environment of several in a training run."""

    name: str
    """Registered name or ``module:Class``."""
    arguments: Arguments = Field(default_factory=dict)
    """Keyword arguments of the environment; null for none."""
    weight: float = Field(gt=0)
    """Share of the groups, relative to the other members' weights."""
    label: str | None = Field(None, pattern=r"^[A-Za-z0-9_]+$")
    """Name in tables, metrics and suites (letters, digits, _); null: ``name`` with _ for all else."""
    reward_scale: float = Field(1.0, gt=0)
    """Factor on this environment's rewards where trajectories are scored; the rollouts keep them as they came."""

    @property
    def known_as(self) -> str:
        """The label in use."""
        return self.label or re.sub(r"\W+", "_", self.name)


class EnvironmentConfig(Section):
    """The training task, or several."""

    name: str
    """Registered name or ``module:Class``; with a mixture the name of the whole, as in the run's name."""
    arguments: Arguments = Field(default_factory=dict)
    """Keyword arguments of the environment; null for none."""
    mixture: list[MixtureMember] | None = Field(None, min_length=1)
    """Environments that share the groups of every iteration by their weights; null: ``name`` alone."""
    workers: int = Field(0, ge=0)
    """Processes that the environments live in; 0: this one. Results do not depend on it."""
    step_limit_seconds: float = Field(60.0, gt=0)
    """Longest reset or step in a worker process before its episode ends as an environment error, s."""
    start_limit_seconds: float = Field(120.0, gt=0)
    """Longest start of a worker process, and longest construction of an environment there, s."""

    @property
    def members(self) -> tuple[MixtureMember, ...]:
        """The environments: those of the mixture, or the only one."""
        if self.mixture is not None:
            return tuple(self.mixture)
        return (MixtureMember(name=self.name, arguments=self.arguments, weight=1.0),)

    def identity(self) -> dict[str, Any]:
        """What the task is, without where it runs; a policy's harness and its name depend on it."""
        task = {"name": self.name, "arguments": self.arguments}
        return task | (
            {} if self.mixture is None else {"mixture": [each.model_dump() for each in self.mixture]}
        )

    @model_validator(mode="after")
    def _members_are_told_apart(self) -> EnvironmentConfig:
        if self.mixture is None:
            return self
        if self.arguments:
            raise ValueError(
                f"arguments = {self.arguments} beside a mixture belong to no environment; set arguments: null and "
                "give each member its own"
            )
        labels = [member.known_as for member in self.mixture]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise ValueError(
                f"mixture holds {min(twice)!r} more than once; give its members different labels (label: ...)"
            )
        return self


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
    """Nucleus sampling; log-probs are of the truncated distribution."""


class RewardConfig(Section):
    """From turns to returns."""

    terms: dict[str, dict[str, float]] = Field(min_length=1)
    """Reward terms by name (or ``module:function``) with their keyword arguments, summed per turn.
    A format penalty must exceed what a turn's steps can cost, or saying nothing pays."""


class ResampleConfig(Section):
    """Drawing further groups where the filter leaves too few."""

    min_kept_groups: int = Field(gt=0)
    """Groups that must survive the filter; below that another round of rollout.groups new groups is drawn."""
    max_rounds: int = Field(1, gt=0)
    """Most further rounds of an iteration; what is there after them is learned from."""


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
    resample: ResampleConfig | None = None
    """Draw further groups where too few survive; null: never."""

    @property
    def is_off(self) -> bool:
        """Whether every group is kept whatever it earned."""
        return self.mode == "std" and self.keep_ratio == 1 and self.keep_zero_spread

    def most_kept(self, groups: int) -> int:
        """The largest number of ``groups`` that can survive."""
        limited = self.mode in {"std", "low_std"}
        return max(1, math.floor(self.keep_ratio * groups + 1e-9)) if limited else groups

    @model_validator(mode="after")
    def _makes_sense(self) -> FilterConfig:
        if self.mode == "threshold" and self.keep_ratio != 1:
            raise ValueError(
                f"mode = 'threshold' with keep_ratio = {self.keep_ratio:g}: this mode keeps every group above "
                "min_std; set keep_ratio = 1 or choose mode std, low_std or top_p"
            )
        if self.resample is not None and self.is_off:
            raise ValueError(
                "resample with keep_ratio = 1 and keep_zero_spread = true: no group is ever filtered, so none is "
                "drawn again; set keep_zero_spread = false, a lower keep_ratio or resample = null"
            )
        return self


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
    seed: int = Field(0, ge=0)
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
    mini_batches: int = Field(1, gt=0)
    """Optimizer steps per pass."""
    micro_batch_tokens: int = Field(16384, gt=0)
    """Most trajectory tokens of one forward pass; fewer take less memory, more share more beginnings."""
    critic_warmup: int = Field(0, ge=0)
    """First iterations in which only the critic learns."""
    target_kl: float | None = Field(None, gt=0)
    """End an iteration's passes when approximate KL to the rollout policy exceeds this; null: never."""
    old_logprobs: Literal["rollout", "recompute"] = "rollout"
    """Denominator of the ratio: the engine's log-probs or the learner's own."""
    lora: LoraConfig | None = None
    """Train adapters and the critic's head alone, the rest frozen; null: all weights."""


class Suite(Section):
    """A fixed set of evaluation prompts."""

    environment: str | None = None
    """Registered environment; null: the training environment with its arguments."""
    arguments: Arguments = Field(default_factory=dict)
    """Arguments of an environment named here; null for none."""
    split: Literal["validation", "test"] = "test"
    """Instances are drawn from this split, disjoint from training."""
    prompts: int = Field(1024, gt=0)
    """Number of prompts, the head of a fixed list; its first 256 are the paper-sized suite."""

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
    generalisation: list[str] = Field(default_factory=list)
    """Suites of other tasks that ``kedro run --pipeline=evaluate`` plays beside the final ones."""
    against: str | None = None
    """``RUN@ITERATION``: a second policy that ``kedro run --pipeline=evaluate`` plays and compares; null: none."""
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
        listed = {"periodic": self.periodic, "final": self.final, "generalisation": self.generalisation}
        for key, names in listed.items():
            for name in names:
                if name not in self.suites:
                    raise ValueError(
                        f"{key} names the suite {name!r}, which is not among {sorted(self.suites)}"
                    )
        return self


class Threshold(Section):
    """When an indicator of collapse warns: its moving average relative to the run's own beginning."""

    side: Literal["below", "above"]
    """On which side of the limits it is bad."""
    warning: float = Field(gt=0)
    """Ratio to the reference at which a warning begins."""
    alarm: float = Field(gt=0)
    """Ratio to the reference at which an alarm begins."""

    @model_validator(mode="after")
    def _alarm_is_worse(self) -> Threshold:
        worse = self.alarm < self.warning if self.side == "below" else self.alarm > self.warning
        if not worse:
            raise ValueError(
                f"alarm = {self.alarm:g} is not worse than warning = {self.warning:g} on the side {self.side!r}"
            )
        return self


class MonitorConfig(Section):
    """The Echo Trap monitor (paper, section 3.1): indicators of collapse and what to do about an alarm."""

    action: Literal["none", "stop", "roll_back"] = "none"
    """On an alarm: record it, end the run, or go back to the last policy before the trouble began."""
    max_roll_backs: int = Field(2, gt=0)
    """After so many roll-backs the next alarm ends the run."""
    window: int = Field(gt=0)
    """Iterations of the moving averages."""
    reference_iterations: int = Field(gt=0)
    """First trained iterations whose mean an indicator is compared with."""
    patience: int = Field(gt=0)
    """Iterations in a row beyond a limit before a stage begins, and back before it ends."""
    release: float = Field(1.1, ge=1)
    """Factor by which a value must be back inside its limit for a stage to end."""
    standard_errors: float = Field(3.0, ge=0)
    """Falls of success smaller than so many standard errors are chance."""
    at_best: float = Field(0.9, gt=0, le=1)
    """Share of its best average that success must hold for a policy to count as good, to go back to."""
    quorum: int = Field(2, gt=0)
    """Other indicators that must agree for a verdict while success has not fallen yet."""
    indicators: dict[str, Threshold] = Field(min_length=1)
    """Metrics of an iteration by name; ``success`` is compared with its best average."""

    @model_validator(mode="after")
    def _success_is_watched(self) -> MonitorConfig:
        if "success" not in self.indicators:
            raise ValueError("indicators must hold 'success', which the others are judged by")
        return self


class QuarantineConfig(Section):
    """Which trajectories are not learned from. It shapes the training, so it cannot change on an existing run."""

    max_logprob: float = Field(1e-4, ge=0)
    """Largest log-prob of a sampled token, nats: a float32 log-softmax may exceed 0 by rounding only."""
    min_logprob: float = Field(-100.0, lt=0)
    """Smallest log-prob of a sampled token, nats: below it the token cannot have been sampled."""
    return_tolerance: float = Field(1e-3, ge=0)
    """How far a return may lie outside the environment's return_range, or off the sum of its turn rewards, in
    units of the return: sums of float32 rewards."""
    max_absolute_reward: float = Field(1000.0, gt=0)
    """Largest absolute reward of one turn after all reward terms, in units of the return."""


class MetricLimits(Section):
    """Bounds on an update's metrics, beyond which the run stops: something has blown up."""

    max_approx_kl: float = Field(10.0, gt=0)
    """KL from the rollout policy to the updated one, nats per token."""
    max_entropy: float = Field(20.0, gt=0)
    """Mean entropy of the next-token distribution, nats; a vocabulary of V tokens gives at most log V."""
    max_gradient_norm: float = Field(1e6, gt=0)
    """Global gradient norm of actor and critic before clipping."""
    max_loss: float = Field(1e6, gt=0)
    """Absolute value of any loss."""


class GatesConfig(Section):
    """What is checked between the stages, how often, and what stops the run (docs/gates.md)."""

    every: int | None = Field(25, gt=0)
    """Iterations between runs of the Great Expectations suites on tables and evaluations; they also run on the last
    ones and on stages alone; null: never. The cheap invariants are checked on every save whatever this is."""
    max_quarantined_share: float = Field(0.05, ge=0, le=1)
    """Largest share of an iteration's trajectories that may be quarantined or lack rows, because their environment
    failed at reset or their first prompt left no room for a response; beyond it the run stops."""
    quarantine: QuarantineConfig = QuarantineConfig()
    limits: MetricLimits = MetricLimits()


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
    """A Hugging Face model directory, a GGUF file or ``package:NAME`` for the GGUF file inside an installed Python
    package; null: build and warm-start the embedded policy."""
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


class ReportConfig(Section):
    """The HTML page of ``kedro run --pipeline=report``. Nothing here changes a run."""

    name: str = Field("report", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Folder of the page in ``data/08_reporting``."""
    runs: list[str] | None = Field(None, min_length=1)
    """Names or glob patterns of training runs; null: run.source's run, else the newest one, with its other seeds."""
    iterations: int = Field(6, ge=2)
    """Iterations of each run in the trajectory browser: the first, the last and evenly spaced ones between them."""
    groups: int = Field(4, gt=0)
    """Groups of each of these iterations; fewer where the page would exceed max_megabytes."""
    prompts: int = Field(12, gt=0)
    """Evaluation prompts shown side by side; up to half of them are ones that the policies fare differently on."""
    max_megabytes: float = Field(15.0, ge=1)
    """Largest size of the page, MB (10^6 bytes)."""


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
    gates: GatesConfig = GatesConfig()
    base_policy: BasePolicyConfig
    monitor: MonitorConfig
    report: ReportConfig = ReportConfig()

    @model_validator(mode="before")
    @classmethod
    def _suites_of_a_mixture(cls, raw: Any) -> Any:
        """Each member of a mixture plays its own copy of a suite without environment, ``<suite>_<label>``."""
        environment = raw.get("environment") if isinstance(raw, dict) else None
        evaluation = raw.get("evaluation") if isinstance(raw, dict) else None
        if not (
            isinstance(environment, dict) and environment.get("mixture") and isinstance(evaluation, dict)
        ):
            return raw
        try:
            members = EnvironmentConfig.model_validate(environment).members
        except ValidationError:
            return raw  # reported where it belongs, with its key
        suites: dict[str, Any] = {}
        copies: dict[str, list[str]] = {}
        for suite, about in (evaluation.get("suites") or {}).items():
            own = not isinstance(about, dict) or about.get("environment") is not None
            tasks = {
                f"{suite}_{each.known_as}": {"environment": each.name, "arguments": each.arguments}
                for each in members
            }
            suites |= {suite: about} if own else {name: about | task for name, task in tasks.items()}
            copies[suite] = [suite] if own else list(tasks)
        listed = {
            key: [name for suite in evaluation[key] for name in copies.get(suite, [suite])]
            for key in ("periodic", "final", "generalisation")
            if isinstance(evaluation.get(key), list)
        }
        return raw | {"evaluation": evaluation | listed | {"suites": suites}}

    @model_validator(mode="after")
    def _combinations(self) -> Parameters:
        if self.rollout.group_size == 1 and not self.filter.is_off:
            raise ValueError(
                "rollout.group_size = 1 with a filter by spread: a single trajectory has none; raise group_size or "
                "switch the filter off with filter.keep_ratio = 1 and filter.keep_zero_spread = true"
            )
        self._check_old_logprobs()
        self._check_resampling()
        return self

    def _check_old_logprobs(self) -> None:
        if self.learner.old_logprobs == "rollout" and self.algorithm.importance_cap is not None:
            raise ValueError(
                f"algorithm.importance_cap = {self.algorithm.importance_cap:g} with learner.old_logprobs = "
                "'rollout': the ratio's denominator is the engine's probability already, which the weight would "
                "divide by twice; set learner.old_logprobs = recompute or importance_cap = null"
            )
        if self.algorithm.importance_cap is not None and self.rollout.top_p < 1:
            raise ValueError(
                f"algorithm.importance_cap with rollout.top_p = {self.rollout.top_p:g}: the engine's log-probs are "
                "of the truncated distribution, so the weights would be biased; set top_p = 1"
            )
        if self.learner.old_logprobs == "rollout" and not self.algorithm.response_mask:
            raise ValueError(
                "algorithm.response_mask = false with learner.old_logprobs = 'rollout': the engine gave no "
                "log-probs for tokens that it did not sample; set learner.old_logprobs = recompute"
            )

    def _check_resampling(self) -> None:
        resample, groups = self.filter.resample, self.rollout.groups
        if resample is None:
            return
        most = self.filter.most_kept(groups)
        if resample.min_kept_groups > most:
            raise ValueError(
                f"filter.resample.min_kept_groups = {resample.min_kept_groups}: of rollout.groups = {groups} the "
                f"filter keeps {most} at most, so every iteration would draw again; lower it, or raise "
                "rollout.groups or filter.keep_ratio"
            )


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
    ("environment", "workers"),
    ("environment", "step_limit_seconds"),
    ("environment", "start_limit_seconds"),
    ("gates", "every"),
    ("gates", "max_quarantined_share"),
    *(("gates", "limits", name) for name in MetricLimits.model_fields),
    *(("report", name) for name in ReportConfig.model_fields),
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
