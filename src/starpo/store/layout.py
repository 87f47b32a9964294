"""The one grammar of names on disk and in the catalog; nothing else builds or reads them.

    data/00_runs/RUN/         run.json, run.log, files.jsonl (checksums), timings.jsonl, turn_seconds/, lease,
                              damaged/ (files that were not what the run wrote), rewards/ (what terms keep)
    data/02_rollouts/RUN/     iter_0012.parquet
    data/03_scored/RUN/       iter_0012.parquet
    data/05_updates/RUN/      iter_0012.parquet, iter_0012.json (metrics)
    data/06_models/RUN/       policy_0012/
    data/07_evaluation/RUN/   test-t0_5/ (suite and temperature): step_0012.parquet, step_0012.json,
                              labels_0012.parquet; reference/SUITE.json
    data/08_reporting/RUN/    comparison_0050.json, evaluation.json, gates/, data_docs/

``conf/base/catalog.yml`` spells the same paths; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from starpo.config.agent import AgentConfig
from starpo.config.base_policy import BasePolicyConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.identity import fingerprint
from starpo.config.parameters import Parameters
from starpo.config.resolved import Source

DATA = "data"
_NUMBERED = re.compile(r"(?:iter|step|labels|comparison|policy|(?:evaluation|against)_.+-t\d+_\d+)_(\d{4,})")
_PLAYED = re.compile(r"(against-)?(.+)-t(\d+_\d+)")
_ENTRY = re.compile(r"(?:iter_(?P<iteration>\d+)|stage)[._](?P<table>rollouts|scored|updates|metrics)")
_EVALUATION = re.compile(
    r"(?P<against>evaluation|against)__(?P<suite>\w+?)__t(?P<temperature>\d+_\d+)__(?P<step>\d+)\.(?P<table>\w+)"
)


class Layer(StrEnum):
    """Folders of ``data/``, in the order in which a run fills them."""

    RECORDS = "00_runs"
    ROLLOUTS = "02_rollouts"
    SCORED = "03_scored"
    UPDATES = "05_updates"
    MODELS = "06_models"
    EVALUATION = "07_evaluation"
    REPORTING = "08_reporting"


def layer_folder(root: Path, layer: Layer) -> Path:
    """``data/<layer>`` of the project at ``root``."""
    return root / DATA / layer


@dataclass(frozen=True)
class Played:
    """A suite at one temperature."""

    suite: str
    """Name of the suite."""
    temperature: float
    """Sampling temperature."""
    against: bool = False
    """Whether by the policy that an evaluation compares its own with."""

    @property
    def folder(self) -> str:
        """Its folder, which is also its name in tables and in MLflow.

        >>> Played("test", 0.5).folder
        'test-t0_5'
        """
        return f"{'against-' if self.against else ''}{self.suite}-t{_in_names(self.temperature)}"

    @classmethod
    def parse(cls, folder: str) -> Played | None:
        """The suite whose folder is called so; None: no suite's is."""
        match = _PLAYED.fullmatch(folder)
        if match is None:
            return None
        return cls(match[2], float(match[3].replace("_", ".")), against=match[1] is not None)

    def entry(self, step: int) -> str:
        """Namespace of its catalog entries: names without ``.turns``, ``.summary``, ``.labels``, ``.seconds``."""
        kind = "against" if self.against else "evaluation"
        return f"{kind}__{self.suite}__t{_in_names(self.temperature)}__{step:04d}"


def _in_names(temperature: float) -> str:
    return str(float(temperature)).replace(".", "_")


def suite_of(folder: str) -> str:
    """The name of a suite's folder without the temperature.

    >>> suite_of("test-t0_5"), suite_of("against-test-t1_0")
    ('test', 'against-test')
    """
    played = Played.parse(folder)
    return folder if played is None else f"{'against-' if played.against else ''}{played.suite}"


@dataclass(frozen=True)
class RunPaths:
    """Where the files of one run lie. Nothing says that they are there."""

    root: Path
    """The project's folder."""
    run: str
    """Name of the run, or of a base policy, which is laid out alike."""

    def folder(self, layer: Layer) -> Path:
        """Its folder in a layer."""
        return layer_folder(self.root, layer) / self.run

    @property
    def record(self) -> Path:
        """Its parameters and state."""
        return self.folder(Layer.RECORDS) / "run.json"

    @property
    def log(self) -> Path:
        """What libraries had to say."""
        return self.folder(Layer.RECORDS) / "run.log"

    @property
    def timings(self) -> Path:
        """Clock times, a line per iteration."""
        return self.folder(Layer.RECORDS) / "timings.jsonl"

    @property
    def files(self) -> Path:
        """Checksums of what was written, a line per file."""
        return self.folder(Layer.RECORDS) / "files.jsonl"

    @property
    def lease(self) -> Path:
        """Touched as long as a process works on the run."""
        return self.folder(Layer.RECORDS) / "lease"

    @property
    def rewards(self) -> Path:
        """Folder of what reward terms keep, such as a judge's replies, in a folder per term."""
        return self.folder(Layer.RECORDS) / "rewards"

    def set_aside(self, path: Path) -> Path:
        """Where a damaged file of the run is kept."""
        return self.folder(Layer.RECORDS) / "damaged" / path.relative_to(self.root / DATA)

    def turn_seconds(self, played: Played, step: int) -> Path:
        """Clock times of an evaluation's turns."""
        kind, own = ("against" if played.against else "evaluation"), Played(played.suite, played.temperature)
        return self.folder(Layer.RECORDS) / "turn_seconds" / f"{kind}_{own.folder}_{step:04d}.json"

    def table(self, layer: Layer, iteration: int) -> Path:
        """Rollouts, scores or updates of an iteration."""
        return self.folder(layer) / f"iter_{iteration:04d}.parquet"

    def tables(self, layer: Layer) -> dict[int, Path]:
        """The stored ones by iteration, rising."""
        return _by_number(self.folder(layer).glob("iter_*.parquet"))

    def metrics(self) -> dict[int, Path]:
        """Stored metrics by iteration, rising."""
        return _by_number(self.folder(Layer.UPDATES).glob("iter_*.json"))

    def policy(self, iteration: int) -> Path:
        """Folder of the policy with ``iteration`` iterations behind it."""
        return self.folder(Layer.MODELS) / policy_name(iteration)

    def policies(self) -> dict[int, Path]:
        """The stored policies by iteration, rising."""
        return policy_folders(self.folder(Layer.MODELS))

    def evaluation(self, played: Played, step: int) -> Path:
        """Turns of an evaluated suite; its summary has the same name and ends in ``.json``."""
        return self.folder(Layer.EVALUATION) / played.folder / f"step_{step:04d}.parquet"

    def evaluations(self, kind: Literal["turns", "summary", "labels"]) -> dict[tuple[str, int], Path]:
        """Stored files of all evaluations by (folder of the suite, step), rising."""
        pattern = {"turns": "*/step_*.parquet", "summary": "*/step_*.json", "labels": "*/labels_*.parquet"}
        found = self.folder(Layer.EVALUATION).glob(pattern[kind])
        numbered = (((path.parent.name, number_of(path)), path) for path in found)
        return dict(sorted(((name, step), path) for (name, step), path in numbered if step is not None))

    def comparisons(self) -> dict[int, Path]:
        """First against last policy, by the iterations behind the last, rising."""
        return _by_number(self.folder(Layer.REPORTING).glob("comparison_*.json"))

    @property
    def overview(self) -> Path:
        """All suites of an evaluation alone."""
        return self.folder(Layer.REPORTING) / "evaluation.json"

    @property
    def gates(self) -> Path:
        """Folder of what the gates' suites found."""
        return self.folder(Layer.REPORTING) / "gates"

    @property
    def data_docs(self) -> Path:
        """Folder of the pages about it."""
        return self.folder(Layer.REPORTING) / "data_docs"


@dataclass(frozen=True)
class Address:
    """What a table's or a metrics file's path says about it."""

    paths: RunPaths
    """Its project and run."""
    layer: Layer
    """Its layer."""
    number: int | None
    """Iteration, or iterations behind the evaluated policy; None where the name has none."""
    played: Played | None = None
    """Suite and temperature of an evaluation's table."""

    @classmethod
    def parse(cls, path: Path) -> Address:
        """Raises ``ValueError`` where ``path`` lies in no run's folder of a layer."""
        parts = path.parts
        for at in range(len(parts) - 2, 0, -1):
            if parts[at - 1] == DATA and parts[at] in set(Layer):
                layer, run, below = Layer(parts[at]), parts[at + 1], parts[at + 2 : -1]
                played = Played.parse(below[0]) if layer is Layer.EVALUATION and below else None
                root = Path(*parts[: at - 1])
                return cls(RunPaths(root, run), layer, number_of(path), played)
        raise ValueError(f"{path}: not in a run's folder of {DATA}/")


def policy_name(iteration: int) -> str:
    """Folder and catalog name of the policy with ``iteration`` iterations behind it.

    >>> policy_name(12)
    'policy_0012'
    """
    return f"policy_{iteration:04d}"


def policy_folders(models: Path) -> dict[int, Path]:
    """Policies under a run's folder of models by iteration, rising; their names rise with it up to 9999 only."""
    return _by_number(models.glob("policy_*"))


def iteration_name(iteration: int) -> str:
    """Namespace of an iteration's catalog entries and stem of its files.

    >>> iteration_name(12)
    'iter_0012'
    """
    return f"iter_{iteration:04d}"


def comparison_name(last: int) -> str:
    """Catalog name and stem of the comparison of the first with the last policy."""
    return f"comparison_{last:04d}"


def reference_name(suite: str) -> str:
    """Catalog name of what a suite's prompts allow."""
    return f"reference__{suite}"


def number_of(path: Path) -> int | None:
    """The number in a file's or a policy folder's name; None: it has none."""
    match = _NUMBERED.fullmatch(path.name.partition(".")[0])
    return None if match is None else int(match[1])


def _by_number(paths: Iterable[Path]) -> dict[int, Path]:
    numbered = ((number_of(path), path) for path in paths)
    return dict(sorted((number, path) for number, path in numbered if number is not None))


@dataclass(frozen=True)
class Entry:
    """What the name of a catalog entry says about it."""

    kind: Literal["rollouts", "scored", "updates", "metrics", "policy", "comparison"] | str
    """What it holds; of an evaluation ``turns``, ``summary``, ``labels`` or ``seconds``."""
    number: int | None = None
    """Iteration; of an evaluation and of a policy the iterations behind the policy; None: a stage alone."""
    played: Played | None = None
    """Suite and temperature of an evaluation."""


def parse_entry(name: str) -> Entry | None:
    """What the catalog entry ``name`` holds; None: nothing of a run's own, such as the engine."""
    if match := _ENTRY.fullmatch(name):
        return Entry(match["table"], None if match["iteration"] is None else int(match["iteration"]))
    if match := _EVALUATION.fullmatch(name):
        temperature = float(match["temperature"].replace("_", "."))
        played = Played(match["suite"], temperature, against=match["against"] == "against")
        return Entry(match["table"], int(match["step"]), played)
    if match := re.fullmatch(r"(policy|comparison)_(\d+)", name):
        return Entry(match[1], int(match[2]))
    return None


def base_policy_run(base: BasePolicyConfig, environment: EnvironmentConfig, agent: AgentConfig) -> str:
    """Folder of the base policy: equal settings share one, whatever the run."""
    key = fingerprint([base.model_dump(), environment.identity(), agent.model_dump()])
    return f"base-{in_names(environment.name)}-{key}"


def default_name(
    pipeline: str, parameters: Parameters, source: Source | None, against: Source | None = None
) -> str:
    """``train_starpo_s-frozen_lake-seed0``; a stage alone adds what it worked on."""
    if source is not None:
        other = f"-against-{against.run}-{against.iteration:04d}" if against else ""
        return f"{pipeline}-{source.run}-{source.iteration:04d}{other}"
    return f"{pipeline}-{in_names(parameters.environment.name)}-seed{parameters.run.seed}"


def in_names(environment: str) -> str:
    """How an environment is called in names of runs and models, which may hold no colon.

    >>> in_names("lakes:Frozen")
    'lakes-Frozen'
    """
    return environment.replace(":", "-")
