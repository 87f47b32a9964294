"""A run's tables as pandas frames, whatever the run is doing at the moment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from starpo.errors import UserError
from starpo.store.reading import read_object, read_table
from starpo.store.runs import RunRecord, current_state


class Run:
    """One run's data, read from its files at every call; open one with :func:`starpo.open_run`.

    Text columns with few values arrive as pandas categories.
    """

    def __init__(self, root: Path, record: RunRecord) -> None:
        self.root = root
        self.record = record

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.state}, {len(self.iterations)} iterations)"

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def state(self) -> str:
        """running, finished, stopped, failed, killed or interrupted."""
        return current_state(self.record)

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters, resolved, as nested dictionaries."""
        return self.record.parameters

    @property
    def iterations(self) -> list[int]:
        """Iterations whose metrics are written."""
        return sorted(_numbered(self._folder("05_updates"), "iter_*.json"))

    def turns(self, iteration: int | None = None) -> pd.DataFrame:
        """Rollouts, one row per turn (``TURNS``), of one iteration or of all."""
        return self._iterations("02_rollouts", "turns", iteration)

    def scored(self, iteration: int | None = None) -> pd.DataFrame:
        """Trajectories with rewards and the filter's verdict, one row each (``SCORED``)."""
        return self._iterations("03_scored", "scored", iteration)

    def updates(self, iteration: int | None = None) -> pd.DataFrame:
        """Advantages, values and ratios, one row per trained turn (``UPDATES``)."""
        return self._iterations("05_updates", "updates", iteration)

    def metrics(self) -> pd.DataFrame:
        """Training metrics, one row per iteration; an iteration without a metric holds NaN there."""
        files = _numbered(self._folder("05_updates"), "iter_*.json")
        rows = [{"iteration": number} | read_object(files[number]) for number in sorted(files)]
        return pd.DataFrame(rows) if rows else pd.DataFrame({"iteration": pd.Series(dtype="int64")})

    def evaluation(self, suite: str | None = None, step: int | None = None) -> pd.DataFrame:
        """Evaluated turns (``TURNS``), after the columns ``suite`` (folder, with temperature) and ``step``.

        Args:
            suite: ``test``, which is all its temperatures, or ``test-t0_5``; None: all.
            step: policy step; None: all.
        """
        found = self._evaluations(suite, step, ".parquet")
        return _frame([_placed(read_table(path, "turns"), folder, number) for folder, number, path in found])

    def failures(self, suite: str | None = None, step: int | None = None) -> pd.DataFrame:
        """What failed evaluated trajectories are put down to (``LABELS``), with ``suite`` and ``step`` in front."""
        found = [
            (folder, number, path.with_name(f"labels_{path.stem.rpartition('_')[2]}.parquet"))
            for folder, number, path in self._evaluations(suite, step, ".parquet")
        ]
        return _frame([_placed(read_table(path, "labels"), folder, number) for folder, number, path in found])

    def evaluation_summary(self) -> pd.DataFrame:
        """One row per suite and policy step: ``suite`` (folder), ``step`` and the keys of ``METRICS``."""
        rows = [
            {"suite": folder, "step": number} | read_object(path) | {"suite": folder, "step": number}
            for folder, number, path in self._evaluations(None, None, ".json")
        ]
        return pd.DataFrame(rows) if rows else pd.DataFrame({"suite": pd.Series(dtype="str"), "step": []})

    def comparison(self) -> pd.DataFrame:
        """First against last policy, one row per suite and temperature; the keys of ``COMPARISON``."""
        folder = self._folder("08_reporting")
        stored = _numbered(folder, "comparison_*.json")
        if not stored:
            raise UserError(
                f"run {self.name!r} has no comparison in {folder}: it is written when the run ends"
            )
        path = stored[max(stored)]
        rows = read_object(path).get("comparisons")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UserError(f"{path} is corrupt (no list 'comparisons'). Remove the file and run again.")
        return pd.DataFrame(rows)

    def _folder(self, layer: str) -> Path:
        return self.root / "data" / layer / self.name

    def _iterations(self, layer: str, kind: str, iteration: int | None) -> pd.DataFrame:
        folder = self._folder(layer)
        files = _numbered(folder, "iter_*.parquet")
        if not files:
            raise UserError(f"run {self.name!r} has no tables in {folder} yet")
        if iteration is not None and iteration not in files:
            raise UserError(f"{folder} has no iteration {iteration}; it has {_ranges(files)}")
        chosen = sorted(files) if iteration is None else [iteration]
        return _frame([read_table(files[number], kind) for number in chosen])

    def _evaluations(self, suite: str | None, step: int | None, suffix: str) -> list[tuple[str, int, Path]]:
        folder = self._folder("07_evaluation")
        found = [
            (path.name, number, file)
            for path in sorted(folder.glob("*/"))
            for number, file in sorted(_numbered(path, f"step_*{suffix}").items())
        ]
        suites = sorted({name for name, _, _ in found})
        if suite is not None:
            found = [item for item in found if suite in (item[0], re.sub(r"-t[0-9._]+$", "", item[0]))]
            if not found:
                raise UserError(
                    f"{folder} has no suite {suite!r}; it has {', '.join(suites) or 'no evaluation yet'}"
                )
        steps = {number for _, number, _ in found}
        if step is not None and step not in steps:
            raise UserError(f"{folder} has no evaluation of step {step}; it has {_ranges(steps)}")
        if suffix == ".parquet" and not found:
            raise UserError(f"run {self.name!r} has no evaluation in {folder} yet")
        return [item for item in found if step in (None, item[1])]


def _numbered(folder: Path, pattern: str) -> dict[int, Path]:
    return {
        int(digits): path
        for path in folder.glob(pattern)
        if (digits := path.stem.rpartition("_")[2]).isdecimal() and path.is_file()
    }


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
