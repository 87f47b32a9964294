"""Which instances belong to training, validation and test, and how an instance of one split is drawn.

An instance belongs to a split by *what the agent sees first*, never by its seed: two seeds that give the same
map give the same split, so no held-out instance can appear in training. Environments whose instances form a
finite set (the bandit's name pairs) declare the split themselves.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES, ContractError, check_reset
from starpo.seeds import Purpose, SeedKey


class Split(StrEnum):
    """The part of all instances that a policy may be trained on, tuned on or judged on."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


#: Expected share of all distinct first observations. The test share is large because small maps and rooms are
#: few: a suite of 256 prompts must not exhaust its split.
SHARES: Final[dict[Split, float]] = {Split.TRAIN: 0.6, Split.VALIDATION: 0.1, Split.TEST: 0.3}

#: Seeds tried before giving up. At a share of 0.1 a thousand misses in a row have probability 1e-46, so the
#: limit is only ever hit by an environment with hardly any distinct instances.
MAX_ATTEMPTS: Final = 1000


@runtime_checkable
class DeclaresSplit(Protocol):
    """An environment that knows, after ``reset``, the split of its present instance."""

    def declared_split(self) -> Split: ...


@dataclass(frozen=True)
class Instance:
    """One task of a split."""

    seed: int  # for ``env.reset(seed=...)``
    attempt: int  # number of seeds rejected before this one, because they fell into another split
    observation: str  # first observation, the identity of the instance


class NoInstanceError(RuntimeError):
    """A split holds no instance, or hardly any."""


def split_of(observation: str) -> Split:
    """The split of an instance, from a stable hash of its first observation.

    >>> split_of("P_\\n_G") == split_of("P_\\n_G")
    True
    """
    digest = hashlib.blake2b(observation.encode(), digest_size=8).digest()
    position = int.from_bytes(digest, "big") / 2**64
    upper = 0.0
    for split, share in SHARES.items():
        upper += share
        if position < upper:
            return split
    return Split.TEST  # the shares' float sum may end a rounding below 1


def split_of_environment(env: TextEnvironment, observation: str) -> Split:
    """The declared split of the environment's present instance, else that of its first ``observation``.

    Raises ``ContractError`` where what is declared is no split.
    """
    if not isinstance(env, DeclaresSplit):
        return split_of(observation)
    declared = env.declared_split()
    try:
        return Split(declared)
    except ValueError:
        raise ContractError(
            f"environment {type(env).__name__!r}: declared_split is {declared!r} of type {type(declared).__name__}, "
            f"expected one of {', '.join(Split)}"
        ) from None


def draw_instance(env: TextEnvironment, *, split: Split, key: SeedKey) -> Instance:
    """Draw the instance that ``key`` names from ``split`` by rejection; ``env`` is left reset to it.

    Only the run seed, stream, iteration, group and round of ``key`` matter: all members of a group and all
    their turns draw the same instance. Raises ``NoInstanceError`` after ``MAX_ATTEMPTS`` misses, and what ``reset``
    raises with the seed in a note.
    """
    wanted = Split(split)
    for attempt in range(MAX_ATTEMPTS):
        seed = dataclasses.replace(key, purpose=Purpose.INSTANCE, member=0, turn=0, attempt=attempt).integer()
        try:
            observation, _ = check_reset(type(env).__name__, env.reset(seed=seed))
        except OWN_FAILURES as error:
            error.add_note(f"reset(seed={seed})")
            raise
        if split_of_environment(env, observation) is wanted:
            return Instance(seed=seed, attempt=attempt, observation=observation)
    raise NoInstanceError(
        f"{type(env).__name__}: no instance of split {wanted.value!r} in {MAX_ATTEMPTS} seeds; it has too "
        "few distinct first observations. Widen its arguments or give it a declared_split method."
    )
