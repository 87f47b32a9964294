"""The champion of each environment: a policy named in ``champion.json`` with the outcome of every prompt it played.

The file is kept in Git, so that a scheduled evaluation can tell whether code, data or machine changed what the same
policy achieves, and whether a candidate is better. Both are paired comparisons on the same prompts and seeds.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from starpo.config.kedro_command import kedro_run
from starpo.errors import UserError
from starpo.evaluation.intervals import Interval, paired_rate_difference
from starpo.evaluation.trajectories import read_trajectories
from starpo.store.layout import Layer, RunPaths
from starpo.store.policies import Policy
from starpo.store.policy_state import MODEL
from starpo.store.reading import read_table

FILE = "champion.json"

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


class Champion(_Record):
    """A policy and what it achieved."""

    run: str
    """Run that trained it."""
    iteration: int
    """Iterations behind it."""
    env: str
    """Kedro environment (``kedro run --env=``) that it is evaluated under."""
    sha256: str
    """Of its ``model.safetensors``."""
    suites: dict[str, Outcomes]
    """By suite and temperature, such as ``test-t0_5``."""

    @property
    def source(self) -> str:
        """``RUN@ITERATION``."""
        return f"{self.run}@{self.iteration}"

    @property
    def command(self) -> str:
        """What records it anew."""
        return f"starpo champion set {self.source} --env={self.env}"


class Judgement(_Record):
    """One suite, before and after."""

    suite: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    """95 % interval of the paired difference."""
    verdict: Verdict


def read_champions(root: Path) -> dict[str, Champion]:
    """By environment; empty without a file. Raises ``UserError`` where the file is damaged."""
    path = root / FILE
    if not path.exists():
        return {}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return {name: Champion.model_validate(value) for name, value in raw.items()}
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is damaged ({reason}); restore it from Git") from None


def write_champion(root: Path, environment: str, champion: Champion) -> None:
    """Replace the environment's entry; the others stay."""
    champions = read_champions(root) | {environment: champion}
    raw = {name: champions[name].model_dump() for name in sorted(champions)}
    path = root / FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def find_champion(root: Path, environment: str, *, retrained: bool = False) -> Policy:
    """The champion's policy, checked to be the recorded one; ``retrained``: or one trained anew under its name.

    Raises:
        UserError: no champion, no weights, or other weights than recorded.
    """
    champions = read_champions(root)
    if environment not in champions:
        known = ", ".join(champions) or "none yet"
        raise UserError(f"{root / FILE} names no champion for {environment!r}; there is: {known}")
    champion = champions[environment]
    folder = RunPaths(root, champion.run).policy(champion.iteration)
    if not (folder / MODEL).exists():
        raise UserError(
            f"{folder}: the champion's weights are not here; fetch them: dvc pull {folder.parent}"
        )
    if not retrained and (found := model_hash(folder)) != champion.sha256:
        raise UserError(
            f"{folder / MODEL} has SHA-256 {found[:12]}…, {FILE} says {champion.sha256[:12]}…: "
            "this is not the champion. Fetch it again (dvc pull), or name the new one: "
            f"{champion.command}"
        )
    return Policy.open(folder)


def model_hash(folder: Path) -> str:
    """SHA-256 of the weights in a policy's folder."""
    return hashlib.sha256((folder / MODEL).read_bytes()).hexdigest()


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
        verdict=verdict,
    )
