"""The Echo Trap monitor: the paper's warning signs of a collapse, watched while a run goes on (paper, section 3.1).

A pure state machine: one iteration's metrics in, the next state and the events out. Nothing here stops or rolls
back a run; the update node acts on the verdict. The state is JSON and part of the learner state, so a resumed run
sees what an uninterrupted one would have seen.

Each indicator is compared with the run's own beginning, over a moving average:

    reference = mean over the first ``reference_iterations`` trained iterations
    value     = mean over the last ``window`` iterations
    ratio     = value / reference        (success: value / best value so far)

and has a stage: quiet, warning or alarm. A stage begins when the ratio is beyond its threshold ``patience`` times in
a row, and ends when it is back by ``release`` as many times in a row.

A healthy run also loses entropy and in-group spread: it gets better. So single indicators are recorded with their
onset but do not make a verdict. The run is in alarm when success has fallen far below its best, when ``quorum``
indicators are in alarm although success is not at its best, or when return rises while success falls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from starpo.config import MonitorConfig, Threshold

Stage = Literal["quiet", "warning", "alarm"]
RANK: dict[Stage, int] = {"quiet": 0, "warning": 1, "alarm": 2}

SUCCESS = "success"
HACKING = "return_up_success_down"
RUN = "run"


class Record(BaseModel):
    """What the monitor remembers of one indicator."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recent: tuple[float, ...] = ()
    """The last ``window`` values."""
    first: tuple[float, ...] = ()
    """The first ``reference_iterations`` values; their mean is the reference."""
    best: float | None = None
    """Highest moving average so far."""
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


def observe(
    state: MonitorState, metrics: dict[str, Any], config: MonitorConfig, *, groups: int
) -> MonitorState:
    """The state after an iteration's ``metrics``; new events stand at the end of ``events``.

    ``groups`` prompts were played: success is an average over so many independent tasks, and a fall within its
    sampling error is none. Iterations that trained nothing carry no gradient or entropy; those indicators wait.
    """
    iteration = int(metrics["iteration"])
    records, events = dict(state.records), list(state.events)
    for name, threshold in config.indicators.items():
        if (value := metrics.get(name)) is None or not math.isfinite(value):
            continue
        record = _remember(records.get(name, Record()), float(value), config)
        aim = _stage_of(record, name, threshold, config, groups)
        records[name] = _move(record, aim, name, iteration, config, events)
    if "return" in metrics and SUCCESS in records:
        record = _remember(records.get(HACKING, Record()), float(metrics["return"]), config)
        aim = _hacking(record, records[SUCCESS], config, groups)
        records[HACKING] = _move(record, aim, HACKING, iteration, config, events)
    aim = _verdict(records, config)
    # Its indicators have been patient already.
    verdict = state.verdict
    if aim != verdict.stage:
        events.append(Event(iteration=iteration, indicator=RUN, before=verdict.stage, after=aim))
        verdict = Record(stage=aim, since=iteration)
    return state.model_copy(
        update={
            "records": records,
            "verdict": verdict,
            "events": tuple(events),
            "good": iteration if state.good is None or _at_best(records, aim, config) else state.good,
        }
    )


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
            update={"recent": (), "stage": "quiet", "beyond": 0, "back": 0, "since": None}
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


def watch(iterations: Iterable[dict[str, Any]], config: MonitorConfig, *, groups: int) -> MonitorState:
    """The state after all ``iterations``' metrics, in order: the verdict on a stored run."""
    state = MonitorState()
    for metrics in iterations:
        state = observe(state, metrics, config, groups=groups)
    return state


def stages(state: MonitorState) -> dict[str, float]:
    """Stages as numbers for the metrics file: 0 quiet, 1 warning, 2 alarm, ``monitor`` for the verdict."""
    named = {f"monitor_{name}": float(RANK[record.stage]) for name, record in state.records.items()}
    return {"monitor": float(RANK[state.verdict.stage])} | named


def lead_times(state: MonitorState) -> dict[str, int | None]:
    """Iterations by which each indicator's first warning came before that of success.

    Negative: it came after. None: it never warned. Empty where success never fell.
    """
    first: dict[str, int] = {}
    for event in state.events:
        if event.before == "quiet" and event.indicator != RUN:
            first.setdefault(event.indicator, event.iteration)
    if SUCCESS not in first:
        return {}
    others = [name for name in state.records if name not in {SUCCESS, HACKING}]
    return {name: first[SUCCESS] - first[name] if name in first else None for name in others}


def describe(event: Event) -> str:
    """One line for people.

    >>> describe(Event(iteration=7, indicator="entropy", before="quiet", after="warning", value=0.1, reference=0.5))
    'iteration 7: entropy quiet -> warning (0.1, reference 0.5)'
    """
    numbers = "" if event.value is None else f" ({event.value:.4g}, reference {event.reference:.4g})"
    return f"iteration {event.iteration}: {event.indicator} {event.before} -> {event.after}{numbers}"


def _remember(record: Record, value: float, config: MonitorConfig) -> Record:
    first = record.first if len(record.first) >= config.reference_iterations else (*record.first, value)
    recent = (*record.recent, value)[-config.window :]
    average = _mean(recent)
    full = len(recent) == config.window
    best = average if full and (record.best is None or average > record.best) else record.best
    return record.model_copy(update={"first": first, "recent": recent, "best": best})


def _stage_of(
    record: Record, name: str, threshold: Threshold, config: MonitorConfig, groups: int
) -> tuple[Stage, Stage]:
    """(stage the value asks for, stage it asks for with the slack that ends one)."""
    if len(record.first) < config.reference_iterations or len(record.recent) < config.window:
        return "quiet", "quiet"
    value = _mean(record.recent)
    reference = record.best if name == SUCCESS and record.best is not None else _mean(record.first)
    if name == SUCCESS and reference - value < _noise(reference, config, groups):
        return "quiet", "quiet"
    return _beyond(value, reference, threshold, 1.0), _beyond(value, reference, threshold, config.release)


def _beyond(value: float, reference: float, threshold: Threshold, slack: float) -> Stage:
    for stage, limit in (("alarm", threshold.alarm), ("warning", threshold.warning)):
        if threshold.side == "below" and value < limit * reference * slack:
            return stage  # type: ignore[return-value]
        if threshold.side == "above" and value > limit * reference / slack:
            return stage  # type: ignore[return-value]
    return "quiet"


def _noise(rate: float, config: MonitorConfig, groups: int) -> float:
    """Falls of a success rate below this are chance: so many standard errors of a mean over prompts."""
    return config.standard_errors * math.sqrt(max(rate * (1 - rate), 0.0) / (groups * config.window))


def _hacking(record: Record, success: Record, config: MonitorConfig, groups: int) -> tuple[Stage, Stage]:
    """Alarm where return is at its best while success is well below its own best."""
    if record.best is None or success.best is None or len(success.first) < config.reference_iterations:
        return "quiet", "quiet"
    fallen = success.best - _mean(success.recent) > _noise(success.best, config, groups)
    risen = _mean(record.recent) >= record.best > _mean(record.first)
    stage: Stage = "alarm" if fallen and risen else "quiet"
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
    hacking = records.get(HACKING)
    if success.stage == "alarm" or (hacking is not None and hacking.stage == "alarm"):
        return "alarm"
    best, others = success.best, [r for n, r in records.items() if n not in {SUCCESS, HACKING}]
    at_best = best is None or _mean(success.recent) >= config.at_best * best
    improved = best is not None and best > _mean(success.first) and at_best
    if not improved:
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
