"""The Echo Trap monitor's limits and actions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from starpo.config.section import Section


class Threshold(Section):
    """When an indicator of collapse warns: its moving average relative to the run's own beginning."""

    UNWRITTEN = frozenset({"metric"})

    metric: str | None = None
    """Metric of an iteration, at least 0, that is watched; null: the one that the indicator is named after."""
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


def _without_null(indicators: object) -> object:
    if not isinstance(indicators, dict):
        return indicators
    return {name: threshold for name, threshold in indicators.items() if threshold is not None}


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
    indicators: Annotated[dict[str, Threshold], BeforeValidator(_without_null)] = Field(min_length=1)
    """Limits by name; ``success`` is compared with its best average. null switches off what a lower configuration
    layer has."""

    @model_validator(mode="after")
    def _success_is_watched(self) -> MonitorConfig:
        if "success" not in self.indicators:
            raise ValueError("indicators must hold 'success', which the others are judged by")
        if self.indicators["success"].metric not in {None, "success"}:
            raise ValueError(
                "the indicator 'success' watches success alone; give another metric another name"
            )
        return self
