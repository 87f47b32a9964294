"""The Echo Trap monitor: the paper's warning signs of a collapse, watched while a run goes on (paper, section 3.1).

A pure state machine: one iteration's metrics in, the next state and the events out. Nothing here stops or rolls
back a run; the update node acts on the verdict. The state is JSON and part of the learner state, so a resumed run
sees what an uninterrupted one would have seen.

Each indicator is compared with the run's own beginning, over a moving average:

    reference = mean over the first ``reference_iterations`` trained iterations
    value     = mean over the last ``window`` iterations
    ratio     = value / reference        (success: value / best so far, the first iteration's among them)

and has a stage: quiet, warning or alarm. A stage begins when the ratio is beyond its threshold ``patience`` times in
a row, and ends when it is back by ``release`` as many times in a row.

An iteration in which no answer had a valid format needs no patience: every answer earns the same penalty, so no
gradient leads out of that state, and the run is in alarm at once.

A healthy run also loses entropy and in-group spread: it gets better. So single indicators are recorded with their
onset but do not make a verdict. The run is in alarm when success has fallen far below its best, when ``quorum``
indicators are in alarm although success did not rise or does not hold, or when return rises while success falls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from starpo.config.monitor import MonitorConfig, Threshold

Stage = Literal["quiet", "warning", "alarm"]
RANK: dict[Stage, int] = {"quiet": 0, "warning": 1, "alarm": 2}

SUCCESS = "success"
HACKING = "return_up_success_down"
FORMAT_LOST = "format_lost"
RUN = "run"


_JUDGED_ALONE = frozenset({SUCCESS, HACKING, FORMAT_LOST})
"""What makes a verdict by itself, and so counts for no quorum."""

_NO_FORMAT = (
    "format_lost: no answer had a valid format, so all are penalised alike and nothing leads back; go back with "
    "monitor.action = roll_back, or start again with a lower learning rate or a KL penalty to the first policy"
)


class Record(BaseModel):
    """What the monitor remembers of one indicator."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recent: tuple[float, ...] = ()
    """The last ``window`` values."""
    first: tuple[float, ...] = ()
    """The first ``reference_iterations`` values; their mean is the reference."""
    errors: tuple[float, ...] = ()
    """Standard errors of ``recent``."""
    best: float | None = None
    """Highest moving average so far, or the first value where that is higher."""
    best_error: float = 0.0
    """Its standard error."""
    stage: Stage = "quiet"
    beyond: int = 0
    """Iterations in a row that speak for a higher stage."""
    back: int = 0
    """Iterations in a row that speak for a lower stage."""
    since: int | None = None
    """Iteration at which the present stage began."""


class Event(BaseModel):
    """A stage that began or ended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    iteration: int
    indicator: str
    """Its name, or ``run`` for the verdict."""
    before: Stage
    after: Stage
    value: float | None = None
    """Moving average at that moment."""
    reference: float | None = None
    """What it was compared with."""


class MonitorState(BaseModel):
    """Everything the monitor knows after an iteration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    records: dict[str, Record] = Field(default_factory=dict)
    """By indicator."""
    verdict: Record = Record()
    """Of the run as a whole."""
    events: tuple[Event, ...] = ()
    """All so far, in order."""
    good: int | None = None
    """Iteration whose policy played when success was last at its best and the verdict quiet; at first the first."""
    roll_backs: int = 0
    """Times the run went back to an earlier policy."""


def observe(state: MonitorState, metrics: dict[str, Any], config: MonitorConfig) -> MonitorState:
    """The state after an iteration's ``metrics``; new events stand at the end of ``events``.

    Success has a sampling error, ``success_error``, and a fall within it is none. Iterations that trained nothing
    carry no gradient or entropy; those indicators wait.
    """
    iteration = int(metrics["iteration"])
    records, events = dict(state.records), list(state.events)
    for name, threshold in config.indicators.items():
        metric = threshold.metric or name
        if (value := metrics.get(metric)) is None or not math.isfinite(value):
            continue
        error = float(metrics.get(f"{metric}_error", 0.0))
        record = _remember(records.get(name, Record()), float(value), error, config)
        aim = _stage_of(record, name, threshold, config)
        records[name] = _move(record, aim, name, iteration, config, events)
    if "return" in metrics and SUCCESS in records:
        record = _remember(records.get(HACKING, Record()), float(metrics["return"]), 0.0, config)
        aim = _hacking(record, records[SUCCESS], config)
        records[HACKING] = _move(record, aim, HACKING, iteration, config, events)
    if "format_valid_rate" in metrics and metrics.get("trajectories"):
        _watch_format(records, metrics["format_valid_rate"], iteration, events)
    reached = _verdict(records, config)
    # Its indicators have been patient already.
    verdict = state.verdict
    if reached != verdict.stage:
        events.append(Event(iteration=iteration, indicator=RUN, before=verdict.stage, after=reached))
        verdict = Record(stage=reached, since=iteration)
    return state.model_copy(
        update={
            "records": records,
            "verdict": verdict,
            "events": tuple(events),
            "good": iteration if state.good is None or _at_best(records, reached, config) else state.good,
        }
    )


def _watch_format(records: dict[str, Record], valid_rate: float, iteration: int, events: list[Event]) -> None:
    """Alarm from the iteration on in which no answer had a valid format to the first in which one has."""
    before = records.get(FORMAT_LOST, Record())
    after: Stage = "quiet" if valid_rate > 0 else "alarm"
    if after != before.stage:
        records[FORMAT_LOST] = Record(stage=after, since=iteration)
        events.append(Event(iteration=iteration, indicator=FORMAT_LOST, before=before.stage, after=after))


def decide(state: MonitorState, config: MonitorConfig) -> Literal["go_on", "stop", "roll_back"]:
    """What the configured action makes of the verdict. Without a good policy, or after too many roll-backs: stop."""
    if state.verdict.stage != "alarm" or config.action == "none":
        return "go_on"
    possible = state.good is not None and state.roll_backs < config.max_roll_backs
    return "roll_back" if config.action == "roll_back" and possible else "stop"


def rolled_back(state: MonitorState, iteration: int) -> MonitorState:
    """The state after a return to the policy of iteration ``good``: averages begin anew, references stay."""
    records = {
        name: record.model_copy(
            update={"recent": (), "errors": (), "stage": "quiet", "beyond": 0, "back": 0, "since": None}
        )
        for name, record in state.records.items()
    }
    event = Event(iteration=iteration, indicator=RUN, before=state.verdict.stage, after="quiet")
    return state.model_copy(
        update={
            "records": records,
            "verdict": Record(),
            "events": (*state.events, event),
            "roll_backs": state.roll_backs + 1,
        }
    )


def watch(iterations: Iterable[dict[str, Any]], config: MonitorConfig) -> MonitorState:
    """The state after all ``iterations``' metrics, in order: the verdict on a stored run."""
    state = MonitorState()
    for metrics in iterations:
        state = observe(state, metrics, config)
    return state


def stages(state: MonitorState) -> dict[str, float]:
    """Stages as numbers for the metrics file: 0 quiet, 1 warning, 2 alarm, ``monitor`` for the verdict."""
    named = {f"monitor_{name}": float(RANK[record.stage]) for name, record in state.records.items()}
    return {"monitor": float(RANK[state.verdict.stage])} | named


def lead_times(state: MonitorState) -> dict[str, int | None]:
    """Iterations by which each indicator's warning came before that of success.

    Of several falls of success the last counts, and of an indicator's warnings the last one before it, or else the
    first after it. Negative: it came after. None: it never warned. Empty where success never fell.
    """
    began: dict[str, list[int]] = {}
    for event in state.events:
        if event.before == "quiet" and event.indicator != RUN:
            began.setdefault(event.indicator, []).append(event.iteration)
    if SUCCESS not in began:
        return {}
    fall = began[SUCCESS][-1]
    leads: dict[str, int | None] = {}
    for name in state.records:
        if name not in _JUDGED_ALONE:
            before = [iteration for iteration in began.get(name, []) if iteration <= fall]
            after = [iteration for iteration in began.get(name, []) if iteration > fall]
            leads[name] = fall - (before[-1] if before else after[0]) if before or after else None
    return leads


def describe(event: Event) -> str:
    """One line for people.

    >>> describe(Event(iteration=7, indicator="entropy", before="quiet", after="warning", value=0.1, reference=0.5))
    'iteration 7: entropy quiet -> warning (0.1, reference 0.5)'
    """
    if event.indicator == FORMAT_LOST and event.after == "alarm":
        return f"iteration {event.iteration}: {_NO_FORMAT}"
    numbers = "" if event.value is None else f" ({event.value:.4g}, reference {event.reference:.4g})"
    return f"iteration {event.iteration}: {event.indicator} {event.before} -> {event.after}{numbers}"


def _remember(record: Record, value: float, error: float, config: MonitorConfig) -> Record:
    first = record.first if len(record.first) >= config.reference_iterations else (*record.first, value)
    recent = (*record.recent, value)[-config.window :]
    errors = (*record.errors, error)[-config.window :]
    best, best_error = (value, error) if record.best is None else (record.best, record.best_error)
    if len(recent) == config.window and _mean(recent) > best:
        best, best_error = _mean(recent), _error_of_mean(errors)
    return record.model_copy(
        update={"first": first, "recent": recent, "errors": errors, "best": best, "best_error": best_error}
    )


def _stage_of(record: Record, name: str, threshold: Threshold, config: MonitorConfig) -> tuple[Stage, Stage]:
    """(stage the value asks for, stage it asks for with the slack that ends one)."""
    if len(record.first) < config.reference_iterations or len(record.recent) < config.window:
        return "quiet", "quiet"
    value = _mean(record.recent)
    if name == SUCCESS:
        assert record.best is not None
        if not _fallen(record, config):
            return "quiet", "quiet"
        reference = record.best
    else:
        reference = _mean(record.first)
    return _beyond(value, reference, threshold, 1.0), _beyond(value, reference, threshold, config.release)


def _beyond(value: float, reference: float, threshold: Threshold, slack: float) -> Stage:
    for stage, limit in (("alarm", threshold.alarm), ("warning", threshold.warning)):
        if threshold.side == "below" and value < limit * reference * slack:
            return stage  # type: ignore[return-value]
        if threshold.side == "above" and value > limit * reference / slack:
            return stage  # type: ignore[return-value]
    return "quiet"


def _fallen(record: Record, config: MonitorConfig) -> bool:
    """Whether the average is below its best by more than chance."""
    assert record.best is not None
    error = math.hypot(record.best_error, _error_of_mean(record.errors))
    return record.best - _mean(record.recent) > config.standard_errors * error


def _error_of_mean(errors: tuple[float, ...]) -> float:
    return math.hypot(*errors) / len(errors)


def _hacking(record: Record, success: Record, config: MonitorConfig) -> tuple[Stage, Stage]:
    """Alarm where return is at its best while success is well below its own best."""
    if len(success.first) < config.reference_iterations or len(success.recent) < config.window:
        return "quiet", "quiet"
    assert record.best is not None
    risen = _mean(record.recent) >= record.best > _mean(record.first)
    stage: Stage = "alarm" if risen and _fallen(success, config) else "quiet"
    return stage, stage


def _move(
    record: Record,
    aim: tuple[Stage, Stage],
    name: str,
    iteration: int,
    config: MonitorConfig,
    events: list[Event],
) -> Record:
    wanted, held = aim
    rising = RANK[wanted] > RANK[record.stage]
    falling = RANK[held] < RANK[record.stage]
    beyond, back = (record.beyond + 1 if rising else 0), (record.back + 1 if falling else 0)
    record = record.model_copy(update={"beyond": beyond, "back": back})
    after = wanted if beyond >= config.patience else held if back >= config.patience else record.stage
    if after == record.stage:
        return record
    reference = record.best if name in {SUCCESS, HACKING} else _mean(record.first)
    value = _mean(record.recent)
    events.append(
        Event(
            iteration=iteration,
            indicator=name,
            before=record.stage,
            after=after,
            value=value,
            reference=reference,
        )
    )
    return record.model_copy(update={"stage": after, "since": iteration, "beyond": 0, "back": 0})


def _verdict(records: dict[str, Record], config: MonitorConfig) -> Stage:
    success = records.get(SUCCESS)
    if success is None:
        return "quiet"
    hacking, lost = records.get(HACKING), records.get(FORMAT_LOST)
    if lost is not None and lost.stage == "alarm":
        return "alarm"
    if success.stage == "alarm" or (hacking is not None and hacking.stage == "alarm"):
        return "alarm"
    others = [record for name, record in records.items() if name not in _JUDGED_ALONE]
    improved = success.best is not None and success.best > success.first[0]
    if not (improved and success.stage == "quiet"):
        if sum(record.stage == "alarm" for record in others) >= config.quorum:
            return "alarm"
        if sum(record.stage != "quiet" for record in others) >= config.quorum:
            return "warning"
    return "warning" if success.stage == "warning" else "quiet"


def _at_best(records: dict[str, Record], verdict: Stage, config: MonitorConfig) -> bool:
    """Whether the average of success is its best so far, and this iteration is no fall that it hides yet."""
    success = records.get(SUCCESS)
    if verdict != "quiet" or success is None or success.best is None:
        return False
    return success.best == _mean(success.recent) and success.recent[-1] >= config.at_best * success.best


def _mean(values: tuple[float, ...]) -> float:
    return math.fsum(values) / len(values)
