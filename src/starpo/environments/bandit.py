"""Two arms, one sure and one risky, told apart only by what their names suggest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar, Final

import numpy as np

from starpo.environments.arguments import check_switches, is_number
from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.records import Expectation, Failure, Limits, PlayedEpisode, StateFacts
from starpo.environments.splits import Split

#: The steady family: things that stay as they are. By default these arms pay a small sum for sure.
LOW_RISK_NAMES: Final = (
    "Anchor", "Anvil", "Barn", "Bench", "Brick", "Clay", "Fence", "Granite", "Hammer", "Ledger",
    "Lock", "Mule", "Oak", "Ox", "Pillar", "Stone", "Tortoise", "Turtle", "Vault", "Wall",
)  # fmt: skip
#: The wild family: things that strike or soar. By default these arms pay rarely but much.
HIGH_RISK_NAMES: Final = (
    "Blaze", "Comet", "Cyclone", "Dragon", "Eagle", "Falcon", "Flame", "Fox", "Geyser", "Griffin",
    "Lightning", "Lion", "Meteor", "Panther", "Rocket", "Shark", "Storm", "Tiger", "Tornado", "Volcano",
)  # fmt: skip


#: People of steady callings, for bandits whose names no training pair of the default families holds.
STEADY_OCCUPATIONS: Final = (
    "Accountant", "Archivist", "Baker", "Carpenter", "Cashier", "Clerk", "Curator", "Farmer", "Gardener",
    "Janitor", "Judge", "Librarian", "Mason", "Nurse", "Optician", "Plumber", "Shepherd", "Tailor", "Teacher",
    "Weaver",
)  # fmt: skip
#: People of callings that win or lose much.
DARING_OCCUPATIONS: Final = (
    "Acrobat", "Adventurer", "Bullfighter", "Cliffdiver", "Corsair", "Daredevil", "Explorer", "Gambler", "Gladiator",
    "Inventor", "Pirate", "Prospector", "Racer", "Rebel", "Smuggler", "Speculator", "Spy", "Stuntman", "Trader",
    "Tycoon",
)  # fmt: skip

#: The (low-risk, high-risk) families that ``Bandit(names=...)`` chooses from.
FAMILIES: Final = {
    "things": (LOW_RISK_NAMES, HIGH_RISK_NAMES),
    "occupations": (STEADY_OCCUPATIONS, DARING_OCCUPATIONS),
}


def _declare(low: int, high: int) -> Split:
    """The split of the pair (low-risk name ``low``, high-risk name ``high``), both indices into the families.

    Splits are wrapped diagonals of the 20 x 20 table of pairs: 12 diagonals train, 2 validate, 6 test. Each
    row and column meets each diagonal once, so every name occurs in 12 training pairs while no held-out pair
    does.
    """
    diagonal = (high - low) % len(HIGH_RISK_NAMES)
    if diagonal < 12:
        return Split.TRAIN
    return Split.VALIDATION if diagonal < 14 else Split.TEST


def _pairs(names: str) -> dict[tuple[str, str], Split]:
    low_risk, high_risk = FAMILIES[names]
    return {
        (low_risk[low], high_risk[high]): _declare(low, high)
        for low, high in product(range(len(low_risk)), range(len(high_risk)))
    }


#: For each choice of names, every (low-risk name, high-risk name) pair with the split it is declared to belong to.
PAIRS: Final[dict[str, dict[tuple[str, str], Split]]] = {names: _pairs(names) for names in FAMILIES}
_PAIR_LISTS: Final = {names: tuple(pairs) for names, pairs in PAIRS.items()}


_OFFER: Final = "Arms: "
WRONG_ARM: Final = "wrong_arm"
LOST_DRAW: Final = "lost_draw"


class Bandit(TextEnvironment):
    """Choose between a sure small payment and a risky one that is worth more on average.

    Description:
        Two arms with telling names. The steady name's arm pays ``low_reward`` always; the wild name's arm
        pays 1 with probability ``high_probability``, else nothing. The names alone tell which is which, so a
        policy has to learn which family of words is worth the risk, although the sure arm pays every time.

    Action Space:
        The two arm names of the present instance (``action_names``; empty before the first reset).

    Observation:
        ``Arms: Dragon, Anchor``, in an order drawn with the instance. After the pull the payment, such as
        ``Dragon: 1.0 points``.

    Starting State:
        One of the 400 pairs of ``PAIRS[names]`` and one of two orders, both uniform. ``declared_split`` gives the
        pair's split: held-out pairs never occur in training, but each of their two names does, in other
        pairs. What is held out is thus the combination, and a model whose vocabulary comes from the training
        split alone has still seen every word.

    Rewards:
        The payment. ``success`` in ``info`` means that the arm with the higher expected payment was chosen,
        whatever it paid.

    Episode End:
        Terminated by the only pull.

    Arguments:
        low_reward: what the sure arm pays; below the risky arm's mean. RAGEN's code has 0.1, its paper 0.15.
        high_probability: chance that the risky arm pays 1.
        names: ``things`` (``Anchor`` or ``Dragon``) or ``occupations`` (``Librarian`` or ``Pirate``), which share
            no name.
        reversed_meaning: swap the families' roles, so that the steady name is the risky arm.
    """

    rules = (
        "You face two arms of a slot machine and pull one of them once. Each arm has its own way of paying, "
        "and its name is a hint to it: think about what the names stand for. Choose the arm with the higher "
        "reward on average. Your action is the name of an arm."
    )
    return_range = (0.0, 1.0)
    action_names: tuple[str, ...]
    failure_labels: ClassVar = {
        WRONG_ARM: "Bandit: the arm with the lower mean was chosen",
        LOST_DRAW: (
            "Bandit: the better arm was chosen, which is a success, and paid nothing: luck; counted beside the failures"
        ),
    }
    trusted = True

    def __init__(
        self,
        *,
        low_reward: float = 0.1,
        high_probability: float = 0.25,
        names: str = "things",
        reversed_meaning: bool = False,
    ) -> None:
        super().__init__()
        if not (is_number(high_probability) and 0 < high_probability < 1):
            raise ValueError(f"Bandit: high_probability is {high_probability!r}, allowed: between 0 and 1")
        if not (is_number(low_reward) and 0 <= low_reward < high_probability):
            raise ValueError(
                f"Bandit: low_reward is {low_reward!r}, allowed: from 0 to below high_probability "
                f"({high_probability!r}), else the risky arm is not the better one"
            )
        if not isinstance(names, str) or names not in FAMILIES:
            raise ValueError(f"Bandit: names is {names!r}, allowed: {', '.join(FAMILIES)}")
        check_switches("Bandit", reversed_meaning=reversed_meaning)
        self.low_reward = low_reward
        self.high_probability = high_probability
        self.names = names
        self.reversed_meaning = reversed_meaning
        self.action_names = ()
        self._pairs = _PAIR_LISTS[names]
        self._pair = self._pairs[0]

    @property
    def best_arm(self) -> str:
        """The risky arm's name, which has the higher expected payment."""
        low_family, high_family = self._pair
        return low_family if self.reversed_meaning else high_family

    def declared_split(self) -> Split:
        """The split of the present pair of names."""
        return PAIRS[self.names][self._pair]

    def optimal_actions(self) -> list[str]:
        """The better arm."""
        return [self.best_arm]

    def best_play(self, limits: Limits) -> Expectation:
        """The better arm's mean."""
        return Expectation(1.0, self.high_probability)

    def random_play(self, limits: Limits) -> Expectation:
        """The mean of both arms."""
        return Expectation(0.5, (self.low_reward + self.high_probability) / 2)

    def chance_of(self, plan: Sequence[str]) -> float:
        """Chance that the better arm, which a won trajectory chose, pays."""
        return self.high_probability

    def own_failure(self, episode: PlayedEpisode) -> Failure | None:
        """The wrong arm, or the better one that paid nothing."""
        if episode.success:
            return Failure(LOST_DRAW, episode.turns - 1) if episode.returned == 0 else None
        return Failure(WRONG_ARM, episode.steps[-1].turn) if episode.steps else None

    def facts(self, observation: str) -> StateFacts | None:
        """The two arms, and the names of the same families that are not among them."""
        arms = self._arms(observation)
        if arms is None:
            return None
        known = {name for family in FAMILIES[self.names] for name in family}
        return StateFacts(arms, present=frozenset(arms), absent=frozenset(known.difference(arms)))

    def distance(self, observation: str) -> float | None:
        """One pull before the pull; after it 0 with the better arm and out of reach with the other."""
        if self._arms(observation) is not None:
            return 1.0
        low_risk, high_risk = FAMILIES[self.names]
        pulled, colon, _ = observation.partition(": ")
        if not colon or pulled not in (*low_risk, *high_risk):
            return None
        return 0.0 if pulled in (low_risk if self.reversed_meaning else high_risk) else math.inf

    def _arms(self, observation: str) -> tuple[str, ...] | None:
        """The names that ``observation`` offers in its order; None where it offers no pair of these families."""
        arms = tuple(observation.removeprefix(_OFFER).split(", "))
        offered = observation.startswith(_OFFER) and (
            arms in PAIRS[self.names] or arms[::-1] in PAIRS[self.names]
        )
        return arms if offered else None

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        self._pair = self._pairs[int(instance.integers(len(self._pairs)))]
        low_first = instance.random() < 0.5
        self.action_names = self._pair if low_first else self._pair[::-1]
        return _OFFER + ", ".join(self.action_names), {"success": False}

    def _act(self, action: str) -> StepResult:
        chose_best = action == self.best_arm
        # Drawn for either arm, so that what the risky arm would have paid is fixed by the dynamics seed.
        pays = bool(self.dynamics.random() < self.high_probability)
        reward = float(pays) if chose_best else self.low_reward
        info = {"success": chose_best, "effective": True}
        return f"{action}: {reward} points", reward, True, False, info
