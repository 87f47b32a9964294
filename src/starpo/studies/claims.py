"""Claims of a study, written down before it runs, and the rules that decide them.

Pure: cells in, verdicts out. Every rule can end in any of the three verdicts. Rules that compare success rates ask for
agreement of two 95 % intervals of the same difference, because there are few seeds and the prompts are common to all:

    over seeds    mean of the seeds' differences with Student's t, seeds as the unit: holds for other seeds
    over prompts  all seeds pooled, clustered by prompt: holds for other prompts of the task
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from starpo.errors import UserError
from starpo.evaluation.intervals import Interval, mean_interval, paired_rate_difference
from starpo.evaluation.outcomes import Outcomes
from starpo.studies.cells import Cell, CellOutcomes

Verdict = Literal["confirmed", "refuted", "undecided"]
Cells = Sequence[tuple[Cell, CellOutcomes]]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class _Claim(_Record):
    text: str
    """The claim in words."""
    written: str | None = None
    """Date on which this claim was written, where that was after the others."""


class Collapses(_Claim):
    """The Echo Trap monitor gives the alarm. Confirmed in ``seeds`` seeds or more, refuted in none."""

    kind: Literal["collapses"]
    task: str
    algorithm: str
    seeds: int = Field(gt=0)
    """Seeds that must collapse."""


class Delays(_Claim):
    """``later`` collapses at least ``margin`` iterations after ``earlier`` with the same seed, or never.

    Only seeds in which ``earlier`` collapses count; with fewer than ``seeds`` of them there is nothing to delay:
    undecided. Confirmed if it holds in all of them; refuted if ``later`` collapses no later in most of them. A run
    without alarm is known to hold out to its last iteration, no longer.
    """

    kind: Literal["delays"]
    task: str
    earlier: str
    later: str
    margin: int = Field(gt=0)
    """Iterations."""
    seeds: int = Field(gt=0)


class Higher(_Claim):
    """The last policy of ``better`` solves a larger share than that of ``worse``, by more than ``margin``.

    Confirmed if both intervals of the difference lie above the margin, refuted if both lie below it.
    """

    kind: Literal["higher"]
    task: str
    better: str
    worse: str
    suite: str
    """Suite and temperature, such as ``test-t1_0``."""
    margin: float = Field(ge=0, lt=1)
    """Share of prompts."""


class Learns(_Claim):
    """The last policy solves a larger share than the first, by more than ``margin``; decided as ``Higher``."""

    kind: Literal["learns"]
    task: str
    algorithm: str
    suite: str
    margin: float = Field(ge=0, lt=1)


class Leads(_Claim):
    """Where success falls, ``indicator`` warned before, in all algorithms and tasks.

    Confirmed in at least ``share`` of the cells in which success fell, refuted in at most 1 - ``share`` of them,
    undecided with fewer than ``cells`` such cells. An indicator that never warned did not warn before.
    """

    kind: Literal["leads"]
    indicator: str
    share: float = Field(gt=0.5, le=1)
    cells: int = Field(gt=0)


Claim = Annotated[Collapses | Delays | Higher | Learns | Leads, Field(discriminator="kind")]


class ClaimsFile(_Record):
    """``claims.yml`` of a study."""

    written: str
    """Date on which the claims were written, before the study ran."""
    claims: dict[str, Claim] = Field(min_length=1)
    """By a short name."""


class Finding(_Record):
    """A claim decided."""

    text: str
    verdict: Verdict
    evidence: str
    """What was measured, in words."""


def read_claims(path: Path) -> ClaimsFile:
    """Raises ``UserError`` naming file and every key where the claims are damaged."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: the claims cannot be read ({error}); {_REMEDY}") from None
    if not isinstance(raw, dict):
        found = "nothing" if raw is None else repr(raw)
        raise UserError(f"{path}: holds {found}, expected the keys written and claims; {_REMEDY}")
    try:
        return ClaimsFile.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {'; '.join(map(_mistake, error.errors()))}; {_REMEDY}") from None


_REMEDY = "correct the file: docs/study.md has its form and the kinds of claims"


def _mistake(problem: Mapping[str, Any]) -> str:
    """The key of a wrong value as it stands in the file, the value and what was expected."""
    where = list(problem["loc"])
    if len(where) > 2:
        del where[2]  # the kind of claim, which pydantic puts between a claim's name and its keys
    value = "" if problem["type"] in {"missing", "extra_forbidden"} else f" = {problem['input']!r}"
    if where[-1] == "written" and problem["type"] == "string_type":
        return f'{".".join(where)}{value}: a date is a text in quotes, such as written: "2026-11-29"'
    return f"{'.'.join(map(str, where))}{value}: {problem['msg']}"


def decide_all(claims: Mapping[str, Claim], cells: Cells) -> dict[str, Finding]:
    """Every claim decided. Raises ``UserError`` where a claim names cells or suites that the study has not."""
    return {name: decide(claim, cells) for name, claim in claims.items()}


def decide(claim: Claim, cells: Cells) -> Finding:
    """One claim decided by the rule of its kind."""
    match claim:
        case Collapses():
            verdict, evidence = _collapses(claim, cells)
        case Delays():
            verdict, evidence = _delays(claim, cells)
        case Higher():
            worse, better = _both(cells, claim.task, claim.worse, claim.better)
            before, after = ([o.after for _, o in chosen] for chosen in (worse, better))
            verdict, evidence = _difference(before, after, claim.suite, claim.margin)
        case Learns():
            chosen = list(_cells(cells, claim.task, claim.algorithm).values())
            before, after = [o.before for _, o in chosen], [o.after for _, o in chosen]
            verdict, evidence = _difference(before, after, claim.suite, claim.margin)
        case Leads():
            verdict, evidence = _leads(claim, cells)
    return Finding(text=claim.text, verdict=verdict, evidence=evidence)


def _collapses(claim: Collapses, cells: Cells) -> tuple[Verdict, str]:
    alarms = {seed: cell.alarm for seed, (cell, _) in _cells(cells, claim.task, claim.algorithm).items()}
    fallen = sum(alarm is not None for alarm in alarms.values())
    verdict: Verdict = "confirmed" if fallen >= claim.seeds else "refuted" if not fallen else "undecided"
    return verdict, f"alarm in {fallen} of {len(alarms)} seeds ({_alarms(alarms)})"


def _delays(claim: Delays, cells: Cells) -> tuple[Verdict, str]:
    earlier, later = _both(cells, claim.task, claim.earlier, claim.later)
    pairs = [(a, b) for (a, _), (b, _) in zip(earlier, later, strict=True) if a.alarm is not None]
    held = sum((b.iterations if b.alarm is None else b.alarm) >= a.alarm + claim.margin for a, b in pairs)  # type: ignore[operator]
    sooner = sum(b.alarm is not None and b.alarm <= a.alarm for a, b in pairs)  # type: ignore[operator]
    both = f"{claim.earlier} {_alarms({a.seed: a.alarm for a, _ in earlier})}; "
    both += f"{claim.later} {_alarms({b.seed: b.alarm for b, _ in later})}"
    if len(pairs) < claim.seeds:
        return "undecided", f"{claim.earlier} collapses in {len(pairs)} seeds only, nothing to delay: {both}"
    verdict: Verdict = (
        "confirmed" if held == len(pairs) else "refuted" if 2 * sooner > len(pairs) else "undecided"
    )
    return (
        verdict,
        f"{claim.margin} iterations or more later in {held} of {len(pairs)} collapsed seeds: {both}",
    )


def _difference(
    before: Sequence[Mapping[str, Outcomes]],
    after: Sequence[Mapping[str, Outcomes]],
    suite: str,
    margin: float,
) -> tuple[Verdict, str]:
    """``before`` and ``after``: one entry per seed, in the same order."""
    seeds, prompts = difference_intervals(
        [_of_suite(each, suite) for each in before], [_of_suite(each, suite) for each in after]
    )
    verdict: Verdict = "undecided"
    if min(seeds.low, prompts.low) > margin:
        verdict = "confirmed"
    elif max(seeds.high, prompts.high) < margin:
        verdict = "refuted"
    over = f"{len(before)} seeds {_points(seeds)}" if len(before) > 1 else "one seed, no interval over seeds"
    against = f", against a margin of {100 * margin:g}" if margin else ""
    return verdict, (
        f"{suite}: {100 * seeds.estimate:+.1f} points; over {over}, over prompts {_points(prompts)}{against}"
    )


def difference_intervals(before: Sequence[Outcomes], after: Sequence[Outcomes]) -> tuple[Interval, Interval]:
    """The difference ``after - before`` of success rates with its interval over seeds and over prompts.

    Args:
        before, after: outcomes by seed, all on the same prompts.

    Raises:
        UserError: the outcomes are not of the same prompts and seeds of evaluation.
    """
    starts = {(each.prompts, each.start) for each in (*before, *after)}
    if len(starts) != 1:
        raise UserError(
            "cells of one comparison were evaluated on different prompts or seeds: evaluation.seed and the suites "
            "must be the same in all of them. Run the study again: dvc repro"
        )
    first, second = (np.stack([each.bits() for each in side]).astype(float) for side in (before, after))
    count, prompts = first.shape
    over_seeds = mean_interval((second - first).mean(axis=1), np.arange(count))
    of_prompt = np.tile(np.arange(prompts), count)
    return over_seeds, paired_rate_difference(first.ravel(), second.ravel(), of_prompt)


def _leads(claim: Leads, cells: Cells) -> tuple[Verdict, str]:
    fallen = [cell.lead_times for cell, _ in cells if cell.lead_times]
    for leads in fallen:
        if claim.indicator not in leads:
            raise UserError(f"no indicator {claim.indicator!r}; the monitor has {', '.join(sorted(leads))}")
    ahead = [lead for leads in fallen if (lead := leads[claim.indicator]) is not None and lead > 0]
    if len(fallen) < claim.cells:
        return "undecided", f"success fell in {len(fallen)} cells only, {claim.cells} are needed"
    share = len(ahead) / len(fallen)
    # A share such as 2/3 is written in decimals: 0.667 must mean two of three.
    near = 1e-3
    verdict: Verdict = "undecided"
    if share >= claim.share - near:
        verdict = "confirmed"
    elif share <= 1 - claim.share + near:
        verdict = "refuted"
    median = f", median lead {np.median(ahead):g} iterations" if ahead else ""
    return verdict, f"{claim.indicator} warned before in {len(ahead)} of {len(fallen)} falls{median}"


def _cells(cells: Cells, task: str, algorithm: str) -> dict[int, tuple[Cell, CellOutcomes]]:
    """The cells of one task and algorithm by seed, rising."""
    found = {pair[0].seed: pair for pair in cells if (pair[0].task, pair[0].algorithm) == (task, algorithm)}
    if not found:
        known = sorted({f"{cell.task} {cell.algorithm}" for cell, _ in cells})
        raise UserError(f"no cell of {task} {algorithm}; the study has {', '.join(known)}")
    return dict(sorted(found.items()))


def _both(
    cells: Cells, task: str, first: str, second: str
) -> tuple[list[tuple[Cell, CellOutcomes]], list[tuple[Cell, CellOutcomes]]]:
    one, other = _cells(cells, task, first), _cells(cells, task, second)
    if one.keys() != other.keys():
        raise UserError(
            f"{task}: {first} has the seeds {sorted(one)}, {second} has {sorted(other)}; both need the same"
        )
    return list(one.values()), list(other.values())


def _of_suite(outcomes: Mapping[str, Outcomes], suite: str) -> Outcomes:
    if suite not in outcomes:
        raise UserError(f"no suite {suite!r}; the cells have {', '.join(sorted(outcomes))}")
    return outcomes[suite]


def _alarms(alarms: Mapping[int, int | None]) -> str:
    return ", ".join(f"seed {seed}: {'no' if at is None else at}" for seed, at in alarms.items())


def _points(interval: Interval) -> str:
    return f"({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"
