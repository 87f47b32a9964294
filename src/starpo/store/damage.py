"""What of a run's files is missing or changed, what can be made again from the others, and how the run goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starpo.store import checksums
from starpo.store.checksums import Fault
from starpo.store.durable import remove_unfinished
from starpo.store.layout import Address, Layer, RunPaths, policy_name
from starpo.store.policies import Policy, faulty_files
from starpo.store.policy_state import MANIFEST, PARTS
from starpo.store.retention import stored_policies


@dataclass(frozen=True)
class Damage:
    """A file of a run that is missing or not what was written."""

    path: Path
    """The file."""
    fault: Fault
    """missing or damaged."""
    source: str | None
    """What the same command makes it again from; None: it is gone for good."""

    def sentence(self, root: Path) -> str:
        """One line about it.

        >>> Damage(Path("data/03_scored/run/iter_0002.parquet"), "missing", "its rollouts").sentence(Path())
        'data/03_scored/run/iter_0002.parquet is missing: can be made again from its rollouts'
        """
        what = "is missing" if self.fault == "missing" else "is not what the run wrote"
        remedy = f"can be made again from {self.source}" if self.source else "cannot be made again"
        return f"{self.path.relative_to(root)} {what}: {remedy}"


def survey(paths: RunPaths, *, trains: bool) -> list[Damage]:
    """Every missing or damaged file of a run, or of a base policy; reads all files that the record names.

    Args:
        paths: the run's.
        trains: whether it goes through iterations; what a stage alone made is made again from its source.
    """
    faults = checksums.faults(paths)
    for policy in paths.policies().values():
        if policy / MANIFEST not in faults and (policy / MANIFEST).exists():
            faults |= {policy / name: fault for name, fault in faulty_files(policy).items()}
    _forgive_later_policies(paths, faults)
    if not faults:
        return []
    sources = _Sources(paths, set(faults)) if trains else None
    return [
        Damage(path, fault, sources.of(path) if sources else "what it was made from")
        for path, fault in faults.items()
    ]


def _forgive_later_policies(paths: RunPaths, faults: dict[Path, Fault]) -> None:
    """A run that went back is about to learn its later policies again."""
    newest = max(
        (number for number, path in paths.policies().items() if (path / MANIFEST).exists()), default=-1
    )
    for number, path in _policies_of(faults):
        if number > newest and faults[path] == "missing":
            del faults[path]


def _policies_of(faults: dict[Path, Fault]) -> Iterator[tuple[int, Path]]:
    for path in list(faults):
        address = Address.parse(path)
        if address.layer is Layer.MODELS and path.name == MANIFEST:
            yield Address.parse(path.parent).number or 0, path


class _Sources:
    """What each file of a training run can be made again from, given which files are faulty."""

    def __init__(self, paths: RunPaths, faulty: set[Path]) -> None:
        self._paths = paths
        self._faulty = faulty
        sound = [policy for policy in stored_policies(paths.folder(Layer.MODELS)) if self._is_sound(policy)]
        self._complete = {policy.iteration for policy in sound if policy.is_complete}
        self._served = {policy.iteration for policy in sound if self._has_model(policy)}
        #: The run goes on from here, so all that is later is made anyway.
        self._newest = max(self._complete, default=0)

    def _is_sound(self, policy: Policy) -> bool:
        folders = {policy.directory, policy.directory.parent / policy.manifest["weights_in"]}
        return not any(path.is_relative_to(folder) for folder in folders for path in self._faulty)

    @staticmethod
    def _has_model(policy: Policy) -> bool:
        holder = policy.directory.parent / policy.manifest["weights_in"]
        return (holder / PARTS["weights"]).exists()

    def of(self, path: Path) -> str | None:
        """In words; None: nothing is left to make it from."""
        address = Address.parse(path)
        number = address.number
        match address.layer:
            case Layer.ROLLOUTS:
                return self._rollouts(number or 0)
            case Layer.SCORED:
                return "its rollouts" if self._has(Layer.ROLLOUTS, number or 0) else None
            case Layer.UPDATES:
                return self._update(number or 0)
            case Layer.MODELS:
                return self._policy(path)
            case Layer.EVALUATION | Layer.RECORDS:
                return self._evaluation(number)
            case Layer.REPORTING:
                return "the evaluations"

    def _has(self, layer: Layer, iteration: int) -> bool:
        path = self._paths.table(layer, iteration)
        if path.exists() and path not in self._faulty:
            return True
        if layer is Layer.SCORED:
            return self._has(Layer.ROLLOUTS, iteration)
        return self._rollouts(iteration) is not None

    def _rollouts(self, iteration: int) -> str | None:
        there = iteration in self._served or iteration >= self._newest
        return policy_name(iteration) if there else None

    def _update(self, iteration: int) -> str | None:
        there = iteration in self._complete or iteration >= self._newest
        return policy_name(iteration) if there and self._has(Layer.SCORED, iteration) else None

    def _policy(self, path: Path) -> str | None:
        iteration = Address.parse(_policy_folder(path)).number or 0
        if iteration == 0:
            return "the policy that the run started from"
        return policy_name(self._newest) if iteration > self._newest else None

    def _evaluation(self, step: int | None) -> str | None:
        if step is None:  # what the prompts allow, whatever the policy
            return "the suite's prompts"
        return policy_name(step) if step in self._served or step > self._newest else None


def _policy_folder(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.parent.parent.name == Layer.MODELS)


def settle(paths: RunPaths, damages: list[Damage]) -> None:
    """Take faulty files out of the way, so that the same command makes them again; the others are marked as lost.

    What is taken away is kept in the run's folder ``damaged``.
    """
    for damage in damages:
        gone = damage.path
        if Address.parse(gone).layer is Layer.MODELS:
            folder = _policy_folder(gone)
            first = Address.parse(folder).number == 0 and damage.source is not None
            if first or gone.relative_to(folder).as_posix() not in PARTS.values():
                # Without one of its small files a policy is none, and the first one is copied again as a whole.
                _move(paths, folder)
                gone = folder / MANIFEST
        _move(paths, gone)
        if damage.source is None:
            checksums.record_lost(gone)


def _move(paths: RunPaths, path: Path) -> None:
    if not path.exists():
        return
    target = paths.set_aside(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        shutil.rmtree(target)
    path.replace(target)


def clear_unfinished(paths: RunPaths) -> None:
    """Delete what a killed process was writing when it ended."""
    for layer in Layer:
        remove_unfinished(paths.folder(layer))
