"""Names of runs and where their files lie; the catalog asks for them through ``${run:…}``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starpo.config.agent import AgentConfig
from starpo.config.base_policy import BasePolicyConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.identity import fingerprint
from starpo.config.parameters import Parameters
from starpo.errors import UserError
from starpo.store.policies import Policy, policy_folders

RECORDS, ROLLOUTS, SCORED, UPDATES = "data/00_runs", "data/02_rollouts", "data/03_scored", "data/05_updates"
MODELS, EVALUATION, REPORTING = "data/06_models", "data/07_evaluation", "data/08_reporting"

#: Stages that can run alone, and what they need of their source.
STAGES = {
    "rollout": "policy",
    "evaluate": "policy",
    "update": "scored",
    "reward": "rollouts",
    "rescore": "rollouts",
}


@dataclass(frozen=True)
class Source:
    """A run at an iteration."""

    run: str
    """Name of the run."""
    iteration: int
    """Iterations behind its policy, or the iteration of its rollouts."""

    def __str__(self) -> str:
        return f"{self.run}@{self.iteration:04d}"


def base_policy_run(base: BasePolicyConfig, environment: EnvironmentConfig, agent: AgentConfig) -> str:
    """Folder of the base policy: equal settings share one, whatever the run."""
    key = fingerprint([base.model_dump(), environment.identity(), agent.model_dump()])
    return f"base-{environment.name.replace(':', '-')}-{key}"


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


def parse_source(root: Path, text: str, what: str) -> Source:
    """``RUN@ITERATION`` or ``RUN@latest``. ``what`` is policy, rollouts or scored. Raises ``UserError``."""
    run, _, iteration = text.partition("@")
    if iteration in {"", "latest"}:
        found = _iterations(root, run, what)
        if not found:
            raise UserError(f"{text!r}: the run {run!r} has no {what}; see `starpo runs list`")
        return Source(run, found[-1])
    if not iteration.isdigit():
        raise UserError(f"{text!r}: expected RUN@ITERATION or RUN@latest, such as my-run@0100")
    return Source(run, int(iteration))


def newest_source(root: Path, what: str, environment: str) -> Source | None:
    """The most recently written policy, rollouts or scores of that environment, or None."""
    folder = {"policy": MODELS, "rollouts": ROLLOUTS, "scored": SCORED}[what]
    candidates = []
    for path in (root / folder).glob("*"):
        found = _iterations(root, path.name, what)
        if found and f"-{in_names(environment)}-" in f"-{path.name}-" and not path.name.startswith("base-"):
            candidates.append((path.stat().st_mtime, path.name, found[-1]))
    if not candidates:
        return None
    _, name, iteration = max(candidates)
    return Source(name, iteration)


def _iterations(root: Path, run: str, what: str) -> list[int]:
    """Iterations for which ``run`` has what is asked for, rising."""
    if what == "policy":
        policies = policy_folders(root / MODELS / run)
        return [iteration for iteration, path in policies.items() if _has_model(path)]
    folder = root / (ROLLOUTS if what == "rollouts" else SCORED) / run
    found = sorted(int(path.stem.removeprefix("iter_")) for path in folder.glob("iter_*.parquet"))
    if what == "scored":
        usable = set(_iterations(root, run, "policy"))
        return [iteration for iteration in found if iteration in usable]
    return found


def _has_model(path: Path) -> bool:
    try:
        return bool(Policy.open(path).model_directory)
    except UserError:
        return False
