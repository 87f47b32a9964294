"""Rows of the table of turns from really playing an environment with given actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from builders import TURN_ROW

from starpo.environments.base import TextEnvironment
from starpo.environments.frozen_lake import FrozenLake
from starpo.environments.sokoban import Sokoban
from starpo.evaluation.trajectories import Episode, Trajectories, episodes, read_trajectories
from starpo.store.schemas import TURNS


class FixedLake(FrozenLake):
    """A lake with one map, whatever the seed."""

    def __init__(self, board: str, **arguments: Any) -> None:
        super().__init__(size=board.count("\n") + 1, **arguments)
        self._map = board

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options={**(options or {}), "board": self._map})


class FixedRoom(Sokoban):
    """A Sokoban with one room, whatever the seed."""

    def __init__(self, board: str, **arguments: Any) -> None:
        rows = board.split("\n")
        super().__init__(size=(len(rows), len(rows[0])), num_boxes=board.count("X"), **arguments)
        self._map = board

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options={**(options or {}), "board": self._map})


class Dice(TextEnvironment):
    """Roll until a six comes, at most three times. An environment of a user's own, with luck and no solver."""

    rules, action_names, return_range = "", ("Roll",), (0.0, 1.0)

    def _begin(self, instance):
        self.rolls = 0
        return "Roll.", {"success": False}

    def _act(self, action):
        self.rolls += 1
        six = bool(self.dynamics.random() < 1 / 6)
        info = {"success": six, "effective": True}
        return f"Roll {self.rolls}: {six}", float(six), six or self.rolls == 3, False, info


def play(
    env: TextEnvironment,
    turns: Sequence[Sequence[str]],
    *,
    stop: str | None = None,
    cut_off: Sequence[int] = (),
    group: int = 0,
    member: int = 0,
    instance_seed: int = 0,
    dynamics_seed: int = 0,
    **row: Any,
) -> list[dict[str, Any]]:
    """One trajectory: a list of actions per turn, until the environment ends it.

    ``stop`` is the trajectory's end unless the environment ends it; turns in ``cut_off`` ran out of tokens.
    """
    observation, _ = env.reset(seed=instance_seed, options={"dynamics_seed": dynamics_seed})
    rows = []
    for number, actions in enumerate(turns):
        before, reward, effective, executed = observation, 0.0, 0, []
        terminated = truncated = success = False
        for action in actions:
            observation, gained, terminated, truncated, info = env.step(action)
            executed.append(action)
            reward += gained
            effective += info["effective"]
            success = info["success"]
            if terminated or truncated:
                stop = "terminated"
                break
        rows.append(
            TURN_ROW
            | {"split": "test", "stream": "suite", "group": group, "member": member, "turn": number}
            | {"instance_seed": instance_seed, "dynamics_seed": dynamics_seed}
            | {"observation": before, "next_observation": observation, "reward": reward}
            | {"actions": list(actions), "executed": executed, "effective": effective}
            | {"terminated": terminated, "truncated": truncated, "success": success}
            | {"stop_reason": "length" if number in cut_off else "stop", "format_valid": bool(actions)}
            | row
        )
        if terminated or truncated:
            break
    return [each | {"trajectory_stop": stop or "turn_limit"} for each in rows]


def read(*trajectories: list[dict[str, Any]]) -> Trajectories:
    """Played trajectories as evaluation reads them."""
    rows = [row for rows in trajectories for row in rows]
    return read_trajectories(pa.Table.from_pylist(rows, schema=TURNS))


def episode(env: TextEnvironment, turns: Sequence[Sequence[str]], **arguments: Any) -> Episode:
    """One played trajectory as a record."""
    return episodes(read(play(env, turns, **arguments)))[0]


def luck_that(*slips: int) -> int:
    """A dynamics seed under which the first moves on ice (1/3 each way) turn by ``slips``: -1, 0 or 1 each."""
    import numpy as np

    for seed in range(10_000):
        draws = np.random.Generator(np.random.PCG64(seed)).random(len(slips))
        if all(int(draw * 3) - 1 == slip for draw, slip in zip(draws, slips, strict=True)):
            return seed
    raise AssertionError(f"no seed gives {slips}")


class Wordless(Dice):
    """The same with free text as actions."""

    action_names = ()
