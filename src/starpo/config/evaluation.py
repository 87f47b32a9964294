"""What is measured, when and on what."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from starpo.config.environment import EnvironmentConfig
from starpo.config.section import Arguments, Section, Seed, Temperature


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

    seed: Seed = 0
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
        """The environment of ``suite``, where and under what limits that of the training runs."""
        chosen = self.suites[suite]
        if chosen.environment is None:
            return training
        own = {"name": chosen.environment, "arguments": chosen.arguments, "mixture": None}
        return training.model_copy(update=own)

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
