"""The validator behind the catalog's ``validator:`` keys: what each saved table must pass.

Every save is checked against limits that need the run's parameters (the share of quarantined trajectories, finite
metrics); the Great Expectations suite of the table runs when it is due. The invariants that need no parameters are
the dataset's own business.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from starpo.config.environment import EnvironmentConfig
from starpo.config.resolved import Resolved
from starpo.errors import UserError
from starpo.gates.expected import Expected
from starpo.gates.invariants import check_metrics, check_schema
from starpo.gates.quarantine import Key, quarantined, return_ranges, too_many, turn_faults
from starpo.store.rejected import keep_rejected, rejection
from starpo.store.schemas import schema_of
from starpo.store.sources import STAGES

if TYPE_CHECKING:
    from starpo.gates.suite import Outcome

logger = logging.getLogger(__name__)

#: Table kind of each suite; metrics are no table.
SUITES: dict[str, str | None] = {
    "rollouts": "turns",
    "scored": "scored",
    "updates": "updates",
    "metrics": None,
    "evaluation": "turns",
}

_MANY = (
    "So many faults have one cause: mend it, or raise gates.max_quarantined_share to go on without these "
    "trajectories."
)


@dataclass
class Clock:
    """Wall-clock seconds that this process spent in gates."""

    total: float = 0.0
    """In all."""
    taken: float = 0.0
    """Of these, reported already."""

    def take(self) -> float:
        """Seconds since the last call."""
        new, self.taken = self.total - self.taken, self.total
        return new


class Gate:
    """A Kedro validator: returns the data, or keeps it in ``rejected/`` and raises.

    Args:
        suite: key of ``SUITES``.
        filepath: where the data is about to be written.
        command: what the present command works with.
    """

    clock: ClassVar[Clock] = Clock()

    def __init__(self, *, suite: str, filepath: str, command: Resolved) -> None:
        if suite not in SUITES:
            raise UserError(f"catalog: suite = {suite!r} is unknown; known: {', '.join(SUITES)}")
        self._suite, self._path, self._command = suite, Path(filepath), command

    def validate(self, data: Any) -> Any:
        """Let ``data`` pass, or raise ``UserError`` naming expectation, rows, file and remedy.

        A stream of record batches is gathered, because the gate sees the table as a whole.
        """
        started = time.perf_counter()
        try:
            return self._check(data)
        finally:
            self.clock.total += time.perf_counter() - started

    def _check(self, data: Any) -> Any:
        kind = SUITES[self._suite]
        if kind is not None and not isinstance(data, pa.Table):
            batches = list(data)
            schema = schema_of(kind, batches[0].schema.names if batches else ())
            data = pa.Table.from_batches(batches, schema=schema)
        expected = self._expected()
        if problem := self._cheap_problem(data, expected):
            raise self._reject(data, *problem)
        if not self._due(expected) or (isinstance(data, pa.Table) and not data.num_rows):
            return data
        outcome = self._run_suite(data, expected)
        self._store(outcome)
        if outcome.stops:
            stopping = [breach for breach in outcome.breaches if breach.stops]
            raise self._reject(
                data, "; ".join(map(str, stopping)), " ".join(dict.fromkeys(b.remedy for b in stopping))
            )
        for breach in outcome.breaches:
            logger.warning("%s: %s. %s", self._path, breach, breach.remedy)
        return data

    def _cheap_problem(self, data: Any, expected: Expected) -> tuple[str, str] | None:
        """A breach that is looked for on every save, and its remedy."""
        kind = SUITES[self._suite]
        if kind is None:
            problem = check_metrics(data)
            return (
                (f"metrics are {problem}", "The update has blown up: lower the learning rate.")
                if problem
                else None
            )
        if problem := check_schema(data.schema, kind):
            return problem, ""
        if self._suite in _FAULTY and data.num_rows:
            faults, total = _FAULTY[self._suite](data, expected)
            if problem := too_many(faults, total, expected.gates.max_quarantined_share):
                return problem, _MANY
        return None

    def _due(self, expected: Expected) -> bool:
        every, resolved = expected.gates.every, self._command
        if every is None:
            return False
        number = self._number()
        if number is None or resolved.pipeline in STAGES:
            return True
        count = resolved.parameters.run.iterations
        return number % every == 0 or number == (count if self._suite == "evaluation" else count - 1)

    def _run_suite(self, data: Any, expected: Expected) -> Outcome:
        # Great Expectations takes seconds to import.
        from starpo.gates import evaluation, frames, metrics, rollouts, scored, updates  # noqa: PLC0415
        from starpo.gates.suite import run_suite  # noqa: PLC0415

        keys = ("group", "member", "turn")
        if self._suite == "metrics":
            frame = frames.metrics_frame(data, metrics.bounds(data, expected))
            return run_suite(self._suite, frame, metrics.expectations(expected), keys=("metric",))
        if self._suite == "scored":
            return run_suite(self._suite, frames.scored_frame(data), scored.expectations(expected), keys=keys)
        if self._suite == "updates":
            return run_suite(
                self._suite, frames.updates_frame(data), updates.expectations(expected), keys=keys
            )
        suite = evaluation if self._suite == "evaluation" else rollouts
        frame = frames.turns_frame(data, expected)
        return run_suite(self._suite, frame, suite.expectations(expected), keys=keys)

    def _expected(self) -> Expected:
        resolved = self._command
        config = resolved.parameters
        step = self._number()
        expected = Expected(gates=config.gates, policy_step=self._policy_step(step))
        if self._suite == "evaluation":
            # Evaluation draws from iteration 0 always; its file is named after the policy.
            suite = self._path.parent.name.removeprefix("against-").rpartition("-t")[0]
            task = config.evaluation.task(suite, config.environment)
            return _with_task(replace(expected, iteration=0), task)
        expected = _with_task(replace(expected, iteration=step), config.environment)
        if resolved.pipeline in STAGES and self._suite != "rollouts":
            return expected  # scored or learned from what another run, with other sizes, rolled out
        return replace(expected, groups=config.rollout.groups, group_size=config.rollout.group_size)

    def _number(self) -> int | None:
        """Iterations behind the table's policy, from the file's name; None where it does not say."""
        match = re.fullmatch(r"(?:iter|step)_(\d+)", self._path.stem)
        return None if match is None else int(match.group(1))

    def _policy_step(self, iteration: int | None) -> int | None:
        """Updates behind the run's policy of ``iteration``, None where it has none of its own."""
        if iteration is None:
            return None
        data, run = self._path.parents[3 if self._suite == "evaluation" else 2], self._run_name()
        manifest = data / "06_models" / run / f"policy_{iteration:04d}" / "manifest.json"
        try:
            return int(json.loads(manifest.read_text())["policy_step"])
        except FileNotFoundError:
            return None

    def _run_name(self) -> str:
        return self._path.parents[1 if self._suite == "evaluation" else 0].name

    def _store(self, outcome: Outcome) -> None:
        """Keep the result for the Data Docs."""
        depth = 3 if self._suite == "evaluation" else 2
        folder = self._path.parents[depth] / "08_reporting" / self._run_name() / "gates"
        folder.mkdir(parents=True, exist_ok=True)
        about = self._path.parent.name if self._suite == "evaluation" else self._suite
        result = outcome.result | {"file": str(Path(*self._path.parts[-(depth + 2) :]))}
        (folder / f"{about}-{self._path.stem}.json").write_text(json.dumps(result, indent=1, sort_keys=True))

    def _reject(self, data: Any, problem: str, remedy: str) -> UserError:
        keep_rejected(self._path, data)
        return rejection(self._path, problem, remedy)


def _with_task(expected: Expected, task: EnvironmentConfig) -> Expected:
    if task.mixture is None:
        arguments, names = {task.name: task.arguments}, {}
    else:
        arguments = {member.known_as: member.arguments for member in task.mixture}
        names = {member.known_as: member.name for member in task.mixture}
    return replace(expected, ranges=return_ranges(task), arguments=arguments, names=names)


def _faulty_turns(turns: pa.Table, expected: Expected) -> tuple[Mapping[Key, str], int]:
    keys = list(zip(turns["group"].to_pylist(), turns["member"].to_pylist(), strict=True))
    groups = max(max(group for group, _ in keys) + 1, expected.groups or 0)
    whole = {(group, member) for group in range(groups) for member in range(expected.group_size or 0)}
    faults = dict.fromkeys(whole.difference(keys), "no_row")
    faults |= turn_faults(turns, expected.gates.quarantine, expected.ranges)
    for key, stop in zip(keys, turns["trajectory_stop"].to_pylist(), strict=True):
        if stop == "environment_error":
            faults[key] = stop
    return faults, len(whole.union(keys))


def _faulty_trajectories(scored: pa.Table, expected: Expected) -> tuple[Mapping[Key, str], int]:
    return quarantined(scored), scored.num_rows


_FAULTY: dict[str, Callable[[pa.Table, Expected], tuple[Mapping[Key, str], int]]] = {
    "rollouts": _faulty_turns,
    "scored": _faulty_trajectories,
}
"""Suite -> faulty trajectories of a table with their reasons, and how many trajectories it holds."""
