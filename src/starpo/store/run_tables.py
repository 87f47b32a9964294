"""A run's tables as pandas frames, whatever the run is doing at the moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow as pa

from starpo.errors import UserError
from starpo.store.layout import Layer, RunPaths, suite_of
from starpo.store.reading import read_object, read_table
from starpo.store.runs import RunRecord, current_state


class Run:
    """One run's data, read from its files at every call; open one with :func:`starpo.open_run`.

    Text columns with few values arrive as pandas categories.
    """

    def __init__(self, root: Path, record: RunRecord) -> None:
        self.root = root
        self.record = record
        self.paths = RunPaths(root, record.name)

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.state}, {len(self.iterations)} iterations)"

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def state(self) -> str:
        """running, finished, stopped, failed, killed or interrupted."""
        return current_state(self.root, self.record)

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters, resolved, as nested dictionaries."""
        return self.record.parameters

    @property
    def iterations(self) -> list[int]:
        """Iterations whose metrics are written."""
        return list(self.paths.metrics())

    def turns(self, iteration: int | None = None) -> pd.DataFrame:
        """Rollouts, one row per turn (``TURNS``), of one iteration or of all."""
        return self._iterations(Layer.ROLLOUTS, "turns", iteration)

    def scored(self, iteration: int | None = None) -> pd.DataFrame:
        """Trajectories with rewards and the filter's verdict, one row each (``SCORED``)."""
        return self._iterations(Layer.SCORED, "scored", iteration)

    def updates(self, iteration: int | None = None) -> pd.DataFrame:
        """Advantages, values and ratios, one row per trained turn (``UPDATES``)."""
        return self._iterations(Layer.UPDATES, "updates", iteration)

    def metrics(self) -> pd.DataFrame:
        """Training metrics, one row per iteration; an iteration without a metric holds NaN there."""
        rows = [{"iteration": number} | read_object(path) for number, path in self.paths.metrics().items()]
        return pd.DataFrame(rows) if rows else pd.DataFrame({"iteration": pd.Series(dtype="int64")})

    def evaluation(self, suite: str | None = None, step: int | None = None) -> pd.DataFrame:
        """Evaluated turns (``TURNS``), after the columns ``suite`` (folder, with temperature) and ``step``.

        Args:
            suite: ``test``, which is all its temperatures, or ``test-t0_5``; None: all.
            step: policy step; None: all.
        """
        return self._evaluated("turns", suite, step)

    def failures(self, suite: str | None = None, step: int | None = None) -> pd.DataFrame:
        """What failed evaluated trajectories are put down to (``LABELS``), with ``suite`` and ``step`` in front."""
        return self._evaluated("labels", suite, step)

    def evaluation_summary(self) -> pd.DataFrame:
        """One row per suite and policy step: ``suite`` (folder), ``step`` and the keys of ``METRICS``."""
        rows = [
            {"suite": folder, "step": number} | read_object(path) | {"suite": folder, "step": number}
            for (folder, number), path in self.paths.evaluations("summary").items()
        ]
        return pd.DataFrame(rows) if rows else pd.DataFrame({"suite": pd.Series(dtype="str"), "step": []})

    def comparison(self) -> pd.DataFrame:
        """First against last policy, one row per suite and temperature; the keys of ``COMPARISON``."""
        stored = self.paths.comparisons()
        if not stored:
            folder = self.paths.folder(Layer.REPORTING)
            raise UserError(
                f"run {self.name!r} has no comparison in {folder}: it is written when the run ends"
            )
        path = stored[max(stored)]
        rows = read_object(path).get("comparisons")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UserError(f"{path} is corrupt (no list 'comparisons'). Remove the file and run again.")
        return pd.DataFrame(rows)

    def _iterations(self, layer: Layer, kind: str, iteration: int | None) -> pd.DataFrame:
        folder, files = self.paths.folder(layer), self.paths.tables(layer)
        if not files:
            raise UserError(f"run {self.name!r} has no tables in {folder} yet")
        if iteration is not None and iteration not in files:
            raise UserError(f"{folder} has no iteration {iteration}; it has {_ranges(files)}")
        chosen = list(files) if iteration is None else [iteration]
        return _frame([read_table(files[number], kind) for number in chosen])

    def _evaluated(
        self, kind: Literal["turns", "labels"], suite: str | None, step: int | None
    ) -> pd.DataFrame:
        folder, found = self.paths.folder(Layer.EVALUATION), self.paths.evaluations(kind)
        if suite is not None:
            suites = sorted({name for name, _ in found})
            found = {key: path for key, path in found.items() if suite in (key[0], suite_of(key[0]))}
            if not found:
                raise UserError(
                    f"{folder} has no suite {suite!r}; it has {', '.join(suites) or 'no evaluation yet'}"
                )
        steps = {number for _, number in found}
        if step is not None and step not in steps:
            raise UserError(f"{folder} has no evaluation of step {step}; it has {_ranges(steps)}")
        if not found:
            raise UserError(f"run {self.name!r} has no evaluation in {folder} yet")
        return _frame(
            [
                _placed(read_table(path, kind), name, number)
                for (name, number), path in found.items()
                if step in (None, number)
            ]
        )


def _placed(table: pa.Table, suite: str, step: int) -> pa.Table:
    """``table`` after the columns ``suite`` and ``step``."""
    names = pa.array([suite] * table.num_rows, pa.string()).dictionary_encode()
    steps = pa.array([step] * table.num_rows, pa.int32())
    return table.add_column(0, "suite", names).add_column(1, "step", steps)


def _frame(tables: list[pa.Table]) -> pd.DataFrame:
    # Each file has its own dictionary of texts; categories must be common to the frame.
    return pa.concat_tables(tables).unify_dictionaries().to_pandas()


def _ranges(numbers: Any) -> str:
    """``{0, 1, 2, 5}`` to ``0-2, 5``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts) or "none"
