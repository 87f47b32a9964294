"""Which prompts a policy solved, small enough for Git, and two policies compared in pairs, prompt by prompt."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from starpo.config.kedro_command import kedro_run
from starpo.errors import UserError
from starpo.evaluation.intervals import Interval, paired_rate_difference
from starpo.evaluation.trajectories import read_trajectories
from starpo.store.layout import Layer, RunPaths
from starpo.store.reading import read_table

Verdict = Literal["same", "better", "worse"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Outcomes(_Record):
    """Which prompts of a suite a policy solved."""

    prompts: int
    """Trajectories, in the order of the suite."""
    success: float
    """Share solved."""
    solved: str
    """One bit per trajectory, highest first, as hexadecimal digits."""
    start: str
    """Hash of instance, dynamics and sampling seeds: outcomes with another one cannot be paired."""

    @classmethod
    def of(cls, turns: pa.Table) -> Outcomes:
        """From a table of evaluated turns of one suite and one policy."""
        t = read_trajectories(turns)
        bits = np.asarray(t.success, dtype=bool)
        seeds = [t.first(name) for name in ("instance_seed", "dynamics_seed", "sampling_seed")]
        digest = hashlib.sha256(json.dumps([list(map(int, each)) for each in seeds]).encode())
        return cls(
            prompts=len(bits),
            success=float(bits.mean()),
            solved=np.packbits(bits).tobytes().hex(),
            start=digest.hexdigest()[:16],
        )

    def bits(self) -> np.ndarray:
        """bool [prompts]."""
        packed = np.frombuffer(bytes.fromhex(self.solved), dtype=np.uint8)
        return np.unpackbits(packed)[: self.prompts].astype(bool)


class Judgement(_Record):
    """One suite, before and after."""

    suite: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    """95 % interval of the paired difference."""
    changed: int
    """Trajectories that end otherwise than before; 0 where the same policy rounds as it did."""
    verdict: Verdict


def evaluated_outcomes(root: Path, run: str, env: str) -> dict[str, Outcomes]:
    """Outcomes of every suite that the evaluation run ``run`` played under ``env``, by suite and temperature."""
    paths = RunPaths(root, run)
    tables = paths.evaluations("turns").items()
    found = {folder: Outcomes.of(read_table(path, "turns")) for (folder, _), path in tables}
    if not found:
        raise UserError(
            f"{paths.folder(Layer.EVALUATION)} holds no evaluation; "
            f"first run: {kedro_run('evaluate', env)} --params run.name={run}"
        )
    return found


def judge(before: dict[str, Outcomes], after: dict[str, Outcomes], record: str) -> list[Judgement]:
    """Paired comparison of every suite that both played.

    A difference counts where its 95 % interval leaves out 0. ``record`` is the command that records ``before`` anew.

    Raises:
        UserError: no suite in common, or a suite with other prompts or seeds.
    """
    common = [suite for suite in before if suite in after]
    if not common:
        raise UserError(
            f"no suite in common: {', '.join(before)} against {', '.join(after)}; record anew: {record}"
        )
    return [_judge(suite, before[suite], after[suite], record) for suite in common]


def _judge(suite: str, before: Outcomes, after: Outcomes, record: str) -> Judgement:
    if (before.prompts, before.start) != (after.prompts, after.start):
        raise UserError(
            f"suite {suite}: other prompts or seeds than those of the record ({before.prompts} and "
            f"{after.prompts} trajectories); the suite has changed. Record the champion anew: {record}"
        )
    interval: Interval = paired_rate_difference(before.bits(), after.bits(), np.arange(before.prompts))
    verdict: Verdict = "worse" if interval.high < 0 else "better" if interval.low > 0 else "same"
    return Judgement(
        suite=suite,
        before=before.success,
        after=after.success,
        difference=interval.estimate,
        low=interval.low,
        high=interval.high,
        changed=int((before.bits() != after.bits()).sum()),
        verdict=verdict,
    )
