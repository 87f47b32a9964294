"""The fixed prompts of evaluation suites: versioned files of instances, checked before they are played.

A *prompt set* is what one task has to offer to evaluation: up to 1,024 instances with distinct first
observations of one split, drawn by a procedure that depends on the task, the split and the evaluation seed and
on nothing else. A suite plays the head of its set; the first 256 are the paper's size. The sets of the tasks in
``SHIPPED`` are files of the package (``prompt_sets/*.csv``: a line that says how many there are, then one
``seed,digest`` row per prompt), listed in ``prompt_sets/manifest.json`` with their SHA-256, so that a changed
environment, random generator or file is noticed instead of quietly changing what is measured. Every other
task's set is drawn when it is needed.

    python -m starpo.evaluation.prompts          # write all files anew
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES, ContractError, close
from starpo.environments.registry import canonical, make
from starpo.environments.splits import Instance, NoInstanceError, Split, draw_instance, split_of_environment
from starpo.errors import UserError
from starpo.rollout.isolated import Build
from starpo.seeds import Purpose, SeedKey

logger = logging.getLogger(__name__)

#: Prompts of a shipped set: four times the paper's 256, for intervals half as wide.
FULL_SIZE: Final = 1024
#: Hex digits of an observation's SHA-256 kept in a file: 1,024 prompts collide with chance 1e-9.
DIGEST_DIGITS: Final = 12
#: An environment is given up after this many failures of its ``reset`` in a row: where nine of ten fail, that happens
#: with probability 1e-9.
MAX_FAILURES: Final = 200
#: A split counts as exhausted after this many repetitions per instance found. The last of n equally likely
#: instances is then missed with probability e**-20.
PATIENCE: Final = 20

FOLDER: Final = resources.files("starpo.evaluation") / "prompt_sets"
REMEDY: Final = (
    "If the change is wanted, write the sets anew with `python -m starpo.evaluation.prompts` and evaluate old "
    "policies again: results on the old prompts do not compare with results on the new ones."
)


@dataclass(frozen=True)
class PromptSet:
    """What a set of prompts is drawn from."""

    environment: str
    """Registered name or ``module:Class``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    split: Split = Split.TEST
    """The instances' split."""
    seed: int = 123
    """``evaluation.seed``."""
    build: Build = field(default=make, compare=False)
    """How the environment is built, and where; the prompts do not depend on it."""

    def __hash__(self) -> int:  # without the arguments, which may hold lists
        return hash((self.environment, self.split, self.seed))

    def identity(self) -> dict[str, Any]:
        """JSON of what decides the prompts: equal for every name and spelling of one task."""
        target, arguments = canonical(self.environment, dict(self.arguments))
        tree = {"target": target, "arguments": arguments, "split": self.split.value, "seed": self.seed}
        identity: dict[str, Any] = json.loads(json.dumps(tree, sort_keys=True, default=repr))
        return identity


#: The embedded policy is shown these lines; other lakes of the same size are the same maps without them.
_SEEN: Final = {"coordinates": True, "surroundings": True}
#: Tasks whose sets are files: every suite of the configurations that come with the project.
SHIPPED: Final = (
    *(
        PromptSet(name, arguments, split)
        for name, arguments in (
            ("frozen_lake_no_slip", _SEEN),
            ("frozen_lake", {}),
            ("bandit", {}),
            ("sokoban", {}),
            ("sokoban_paper", {}),
            ("webshop_easy", {}),
            ("webshop", {}),
        )
        for split in (Split.VALIDATION, Split.TEST)
    ),
    PromptSet("frozen_lake", _SEEN),
    PromptSet("frozen_lake_8x8", _SEEN | {"slippery": False}),
    PromptSet("frozen_lake_ragen_v2", _SEEN),
    PromptSet("bandit_occupations"),
    PromptSet("bandit_reversed"),
    PromptSet("sokoban_different_vocab_paper"),
    PromptSet("sokoban_large_paper"),
)


def fixed_prompts(
    environment: str,
    arguments: Mapping[str, Any],
    *,
    split: Split,
    seed: int,
    prompts: int,
    build: Build = make,
) -> tuple[Instance, ...]:
    """The first ``prompts`` instances of the task's set, distinct as far as the split has distinct ones.

    A smaller set is repeated from its start, with a line in the log. Raises ``UserError`` if a shipped file is
    damaged or its seeds no longer give the prompts they were written for.
    """
    return _instances(PromptSet(environment, dict(arguments), split, seed, build), prompts)


@lru_cache(maxsize=32)  # a run evaluates on the same prompts again and again
def _instances(wanted: PromptSet, prompts: int) -> tuple[Instance, ...]:
    entry = _manifest().get(_key(wanted.identity()))
    if entry is not None and (prompts <= entry["prompts"] or entry["complete"]):
        found = _load(wanted, FOLDER / entry["file"], entry["sha256"], prompts)
    else:
        found = tuple(islice(_distinct(wanted), prompts))
    if not found:
        raise UserError(
            f"environment {wanted.environment!r} has no instance of split {wanted.split.value!r}; widen its "
            "arguments or give it a declared_split method"
        )
    if len(found) < prompts:
        logger.warning(
            "%s has %d distinct %s prompts; the suite's %d repeat them, each time with luck of its own",
            wanted.environment,
            len(found),
            wanted.split.value,
            prompts,
        )
    return tuple(found[index % len(found)] for index in range(prompts))


def _distinct(wanted: PromptSet) -> Iterator[Instance]:
    """Instances with distinct first observations, in the set's order, until the split is exhausted.

    Those that the environment fails to make are left out, with a line in the log. Raises ``UserError`` where
    ``MAX_FAILURES`` fail in a row, ``ContractError`` where what it makes is no instance.
    """
    env = wanted.build(wanted.environment, **wanted.arguments)
    try:
        yield from _drawn(wanted, env)
    finally:
        close(env)


def _drawn(wanted: PromptSet, env: TextEnvironment) -> Iterator[Instance]:
    seen: set[str] = set()
    repeated = failed = in_a_row = 0
    for number in count():
        # The stream names the split alone, so that variants of one task that differ in luck share their maps.
        key = SeedKey(wanted.seed, Purpose.INSTANCE, f"prompts:{wanted.split.value}", group=number)
        try:
            instance = draw_instance(env, split=wanted.split, key=key)
        except NoInstanceError:  # hardly any of this split
            return
        except (ContractError, UserError):
            raise
        except OWN_FAILURES as error:  # the environment's own failure costs a prompt, not the run
            failed, in_a_row = failed + 1, in_a_row + 1
            what = f"{type(error).__name__}: {'; '.join([str(error), *getattr(error, '__notes__', [])])}"
            if in_a_row > MAX_FAILURES:
                raise UserError(
                    f"environment {wanted.environment!r}: its reset failed {in_a_row} times in a row, after "
                    f"{len(seen)} prompts that it made; last: {what}"
                ) from error
            if failed == 1:
                logger.warning(
                    "%s: %s prompts whose reset fails are left out; the first: %s",
                    wanted.environment,
                    wanted.split.value,
                    what,
                )
            continue
        in_a_row = 0
        if instance.observation not in seen:
            seen.add(instance.observation)
            repeated = 0
            yield instance
        else:
            repeated += 1
            if repeated > PATIENCE * len(seen):
                return


def _digest(observation: str) -> str:
    return hashlib.sha256(observation.encode()).hexdigest()[:DIGEST_DIGITS]


def _load(wanted: PromptSet, file: Traversable, sha256: str, prompts: int) -> tuple[Instance, ...]:
    """The first ``prompts`` rows of a shipped file, each checked against the environment as it is now."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error}); reinstall the package") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise UserError(
            f"{file}: SHA-256 is {found[:12]}…, the manifest says {sha256[:12]}…; the file was changed or "
            "damaged. Restore it from the package or from version control."
        )
    env = wanted.build(wanted.environment, **wanted.arguments)
    instances: dict[str, Instance] = {}
    _, _, table = content.decode().partition("\n")
    for number, row in enumerate(islice(csv.DictReader(io.StringIO(table)), prompts), start=1):
        instance = _check_row(env, row, wanted.split, f"{file}, row {number}")
        if instance.observation in instances:
            raise UserError(f"{file}, row {number}: the prompt was there before. {REMEDY}")
        instances[instance.observation] = instance
    return tuple(instances.values())


def _check_row(env: TextEnvironment, row: Mapping[str, str], split: Split, where: str) -> Instance:
    seed = int(row["seed"])
    observation, _ = env.reset(seed=seed)
    if _digest(observation) != row["digest"]:
        raise UserError(
            f"{where}: seed {seed} now gives a first observation with digest {_digest(observation)}, expected "
            f"{row['digest']}; {type(env).__name__} or numpy's generator changed. {REMEDY}"
        )
    actual = split_of_environment(env, observation)
    if actual is not split:
        raise UserError(
            f"{where}: the prompt belongs to split {actual.value!r}, expected {split.value!r}; the rule that "
            f"assigns splits changed. {REMEDY}"
        )
    return Instance(seed=seed, attempt=0, observation=observation)


def _key(identity: Mapping[str, Any]) -> str:
    return json.dumps(identity, sort_keys=True)


@cache
def _manifest() -> dict[str, dict[str, Any]]:
    """Manifest entries by the identity of their set."""
    file = FOLDER / "manifest.json"
    try:
        return {_key(entry["identity"]): entry for entry in json.loads(file.read_text(encoding="utf-8"))}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{file}: cannot be read ({type(error).__name__}: {error}); restore it from the package or from version "
            "control"
        ) from error


def write_prompt_sets(folder: Path) -> list[dict[str, Any]]:
    """Draw every set of ``SHIPPED`` and write its file and the manifest to ``folder``; returns the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    entries: dict[str, dict[str, Any]] = {}
    for wanted in SHIPPED:
        identity = wanted.identity()
        instances = tuple(islice(_distinct(wanted), FULL_SIZE))
        rows = "".join(f"{each.seed},{_digest(each.observation)}\n" for each in instances)
        complete = len(instances) < FULL_SIZE
        content = f"{_headline(wanted, len(instances), complete)}\nseed,digest\n{rows}".encode()
        checksum = hashlib.sha256(content).hexdigest()
        same = next((entry["file"] for entry in entries.values() if entry["sha256"] == checksum), None)
        file = same or f"{wanted.environment}-{wanted.split.value}-{checksum[:8]}.csv"
        (folder / file).write_bytes(content)
        entries[_key(identity)] = {
            "identity": identity,
            "file": file,
            "sha256": checksum,
            "prompts": len(instances),
            "complete": complete,
        }
    listed = list(entries.values())
    manifest = json.dumps(listed, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / "manifest.json").write_text(manifest + "\n", encoding="utf-8")
    return listed


def _headline(wanted: PromptSet, prompts: int, complete: bool) -> str:
    # Without the task's name: tasks that differ in luck alone share a file.
    scope = "all that there are" if complete else "the first of many"
    return f"# split {wanted.split.value}, evaluation seed {wanted.seed}: {prompts} prompts, {scope}"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for entry in write_prompt_sets(Path(str(FOLDER))):
        logger.info("%s: %d prompts", entry["file"], entry["prompts"])
