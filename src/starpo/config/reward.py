"""Rewards, and which groups are learned from."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from starpo.config.section import Section

PLAIN_TERMS: Final = frozenset({"environment", "format_penalty"})
"""Reward terms whose values per turn are columns of the turns: with no others, sums tell all."""


class NormalizeConfig(Section):
    """Normalising returns before advantages are taken; the filter goes by the raw ones."""

    method: Literal["mean", "mean_std", "asym_clip"]
    """Minus the mean; divided by the standard deviation as well; that held within [-1, 3]."""
    over: Literal["group", "batch", "environment"] = "group"
    """Whose mean: of the group (RAGEN's ``state``), all trajectories of the iteration (``batch``), or all of the same
    environment (``inductive``)."""


class RewardConfig(Section):
    """From turns to returns."""

    UNWRITTEN = frozenset({"normalize"})

    terms: dict[str, dict[str, Any] | None] = Field(min_length=1)
    """Reward terms by name (or ``module:function``) with their keyword arguments and ``weight``, summed per turn; null
    switches one off. A format penalty must exceed what a turn's steps can cost, or saying nothing pays."""
    normalize: NormalizeConfig | None = None
    """How returns are normalised within the rewards that are learned from; null: not at all."""

    @property
    def active(self) -> dict[str, dict[str, Any]]:
        """The terms that are not switched off."""
        return {name: arguments for name, arguments in self.terms.items() if arguments is not None}

    @property
    def detailed(self) -> bool:
        """Whether scored tables have more columns than sums of terms, and metrics a number for each term."""
        return self.normalize is not None or not self.active.keys() <= PLAIN_TERMS

    @model_validator(mode="after")
    def _something_is_left(self) -> RewardConfig:
        if not self.active:
            raise ValueError(
                "terms: all are switched off (null), so nothing can be learned; give one its parameters or {}"
            )
        return self


class ResampleConfig(Section):
    """Drawing further groups where the filter leaves too few."""

    min_kept_groups: int = Field(gt=0)
    """Groups that must survive the filter; below that another round of rollout.groups new groups is drawn."""
    max_rounds: int = Field(1, gt=0)
    """Most further rounds of an iteration; what is there after them is learned from."""


class FilterConfig(Section):
    """Which groups are learned from (paper, section 3.2)."""

    mode: Literal["std", "low_std", "random", "top_p", "threshold"] = "std"
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
        limited = self.mode in {"std", "low_std", "random"}
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
