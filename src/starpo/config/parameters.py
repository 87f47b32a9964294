"""All sections together: what they must agree on, and one message for all mistakes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError, model_validator

from starpo.config.agent import AgentConfig
from starpo.config.algorithm import AlgorithmConfig
from starpo.config.base_policy import BasePolicyConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.evaluation import EvaluationConfig
from starpo.config.gates import GatesConfig
from starpo.config.learner import LearnerConfig
from starpo.config.monitor import MonitorConfig
from starpo.config.prompt import PROMPTS, PromptTemplates
from starpo.config.report import ReportConfig
from starpo.config.reward import FilterConfig, RewardConfig
from starpo.config.rollout import EngineConfig, RolloutConfig
from starpo.config.run import RunConfig
from starpo.config.section import Section
from starpo.errors import UserError


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
        if self.learner.old_logprobs == "rollout" and self.rollout.top_p < 1:
            raise ValueError(
                f"rollout.top_p = {self.rollout.top_p:g} with learner.old_logprobs = 'rollout': the engine's log-probs "
                "are of the truncated distribution, the learner's of the whole one, so that ratios would not be 1 "
                "before the first step; set learner.old_logprobs = recompute or top_p = 1"
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
    known = {key: value for key, value in raw.items() if key not in {"presets", PROMPTS}}
    agent = known.get("agent")
    if isinstance(agent, dict) and isinstance(agent.get("prompt"), str):
        known["agent"] = agent | {"prompt": _named_prompt(agent["prompt"], raw.get(PROMPTS, {}))}
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


def _named_prompt(name: str, prompts: dict[str, dict[str, str]]) -> dict[str, str]:
    """The templates called ``name``; those of the code stand for ``starpo`` where ``conf/`` has none."""
    own = PromptTemplates()
    known = {own.name: own.model_dump()} | prompts
    if name not in known:
        raise UserError(
            f"agent.prompt = {name!r}: there is no such prompt; there are {', '.join(sorted(known))}. Name one of "
            f"them, or write conf/base/prompts/{name}/system.j2, user.j2 and complaint.j2 (docs/prompts.md)"
        )
    return known[name]


def _known_keys(path: tuple[Any, ...]) -> list[str]:
    model: Any = Parameters
    for part in path:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[part].annotation
    return sorted(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []
