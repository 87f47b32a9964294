"""The validator behind the catalog's ``validator:`` keys: what each saved table must pass.

On every save the cheap rules are checked, with what is known of the run; the Great Expectations suite of all rules
runs when it is due.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from starpo.config.resolved import Resolved
from starpo.errors import UserError
from starpo.gates.expected import Expected
from starpo.gates.facts import Facts
from starpo.gates.metrics import metrics_table
from starpo.gates.rule import Breach, check
from starpo.gates.rules import SUITES
from starpo.store.layout import Address
from starpo.store.policies import Policy
from starpo.store.policy_state import MANIFEST
from starpo.store.rejected import keep_rejected, rejection
from starpo.store.schemas import schema_of
from starpo.store.sources import STAGES

logger = logging.getLogger(__name__)


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
        """Let ``data`` pass, or raise ``UserError`` naming rule, rows, file and remedy.

        A stream of record batches is gathered, because the gate sees the table as a whole.
        """
        started = time.perf_counter()
        try:
            return self._check(data)
        finally:
            self.clock.total += time.perf_counter() - started

    def _check(self, data: Any) -> Any:
        address = Address.parse(self._path)
        expected = expected_at(address, self._suite, self._command)
        if isinstance(data, Mapping):
            table = metrics_table(data, expected)
        else:
            data = table = _gathered(data, "turns" if self._suite in _OF_TURNS else self._suite)
        if not table.num_rows:
            return data
        facts = Facts(table, expected)
        if due(address, self._suite, self._command):
            breaches = self._run_suite(facts, address)
        else:
            first = check(SUITES[self._suite], facts)
            breaches = [] if first is None else [first]
        if stopping := [breach for breach in breaches if not breach.rule.fault]:
            keep_rejected(self._path, data)
            remedies = " ".join(dict.fromkeys(breach.rule.remedy for breach in stopping))
            raise rejection(self._path, "; ".join(map(str, stopping)), remedies)
        for breach in breaches:
            logger.warning("%s: %s. The trajectory is quarantined.", self._path, breach)
        return data

    def _run_suite(self, facts: Facts, address: Address) -> list[Breach]:
        """What the suite finds; its result is kept for the Data Docs."""
        # Great Expectations takes seconds to import.
        from starpo.gates.suite import run_suite  # noqa: PLC0415

        outcome = run_suite(self._suite, SUITES[self._suite], facts)
        result = outcome.result | {"file": str(self._path.relative_to(address.paths.root))}
        about = self._suite if address.played is None else address.played.folder
        address.paths.gates.mkdir(parents=True, exist_ok=True)
        file = address.paths.gates / f"{about}-{self._path.stem}.json"
        file.write_text(json.dumps(result, indent=1, sort_keys=True))
        return outcome.breaches


_OF_TURNS = ("rollouts", "evaluation")


def _gathered(data: Any, kind: str) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    batches = list(data)
    return pa.Table.from_batches(batches, schema_of(kind, batches[0].schema.names if batches else ()))


def due(address: Address, suite: str, resolved: Resolved) -> bool:
    """Whether the suite runs: every ``gates.every`` iterations, on the last one and in a stage alone."""
    every, number = resolved.parameters.gates.every, address.number
    if every is None:
        return False
    if number is None or resolved.pipeline in STAGES:
        return True
    count = resolved.parameters.run.iterations
    return number % every == 0 or number == (count if suite == "evaluation" else count - 1)


def expected_at(address: Address, suite: str, resolved: Resolved) -> Expected:
    """What is known of the table at ``address``."""
    config = resolved.parameters
    expected = Expected(
        quarantine=config.gates.quarantine,
        limits=config.gates.limits,
        max_quarantined_share=config.gates.max_quarantined_share,
        iteration=address.number,
        policy_step=_policy_step(address),
    )
    if address.played is not None:
        # Evaluation draws from iteration 0 always; its file is named after the policy.
        task = config.evaluation.task(address.played.suite, config.environment)
        return replace(expected.of(task), iteration=0)
    expected = expected.of(config.environment)
    if resolved.pipeline in STAGES and suite != "rollouts":
        return expected  # scored or learned from what another run, with other sizes, rolled out
    return replace(expected, groups=config.rollout.groups, group_size=config.rollout.group_size)


def _policy_step(address: Address) -> int | None:
    """Updates behind the run's policy of the iteration, None where it has none of its own."""
    if address.number is None:
        return None
    folder = address.paths.policy(address.number)
    return Policy.open(folder).step if (folder / MANIFEST).exists() else None
