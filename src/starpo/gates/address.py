"""Where a table is about to be written, and what follows from it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Address:
    """The place of one table or of one iteration's metrics in the project's data."""

    data: Path
    """Folder of the layers."""
    file: Path
    """The file, from the folder above ``data``."""
    run: str
    """Name of the run."""
    iteration: int | None
    """Iterations behind the table's policy; None where the file's name does not say."""
    prompts: str | None
    """Name of the evaluation suite that was played; None in training."""
    result: str
    """Name of what a gate finds, among those of the run."""

    @property
    def gate_result(self) -> Path:
        """File of what a gate finds."""
        return self.data / "08_reporting" / self.run / "gates" / f"{self.result}.json"

    def policy_step(self) -> int | None:
        """Updates behind the run's policy of the iteration, None where it has none of its own."""
        if self.iteration is None:
            return None
        folder = self.data / "06_models" / self.run / f"policy_{self.iteration:04d}"
        try:
            return int(json.loads((folder / "manifest.json").read_text())["policy_step"])
        except FileNotFoundError:
            return None


def address_of(path: Path, suite: str) -> Address:
    """The address that ``path`` spells, of a table that ``suite`` is for."""
    played = path.parent.name if suite == "evaluation" else None
    depth = 2 if played is None else 3
    number = re.fullmatch(r"(?:iter|step)_(\d+)", path.stem)
    return Address(
        data=path.parents[depth],
        file=Path(*path.parts[-(depth + 2) :]),
        run=path.parents[depth - 2].name,
        iteration=None if number is None else int(number.group(1)),
        prompts=None if played is None else played.removeprefix("against-").rpartition("-t")[0],
        result=f"{played or suite}-{path.stem}",
    )
