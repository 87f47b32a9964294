"""The other side of ``environments.py``: gym-sokoban 0.0.6 and Gymnasium's FrozenLake, in their own environment.

Runs with benchmarks/.venv-environments; imports nothing of this project.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

warnings.simplefilter("ignore")
with contextlib.redirect_stderr(io.StringIO()):  # gym says at length that it is not maintained
    import numpy as np
    from gym_sokoban.envs import sokoban_env
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

#: Sides and boxes of RAGEN's two Sokoban tasks.
SOKOBAN = {"6x6": ((6, 6), 1), "8x8": ((8, 8), 2)}


class WithoutImage(sokoban_env.SokobanEnv):  # type: ignore[misc]
    """The same environment with its drawing left out: state, reward and end only, not even a text."""

    def render(self, *arguments: Any, **options: Any) -> None:
        return None


def rooms(size: str, count: int, seed: int) -> tuple[int, float]:
    """``count`` rooms from the generator alone, without the environment around it."""
    side, boxes = SOKOBAN[size]
    np.random.seed(seed)  # noqa: NPY002 - the generator draws from numpy's global state
    steps = int(1.7 * sum(side))
    made = 0
    began = time.process_time()
    while made < count:
        try:
            sokoban_env.generate_room(dim=side, num_steps=steps, num_boxes=boxes)
        except (RuntimeError, RuntimeWarning):
            continue  # it found no room; its own environment tries again, too
        made += 1
    return count, time.process_time() - began


def sokoban_steps(size: str, image: bool, episodes: int, seed: int) -> tuple[int, float]:
    """Random pushes and moves to the end of each episode; resets are not timed."""
    side, boxes = SOKOBAN[size]
    np.random.seed(seed)  # noqa: NPY002
    build = sokoban_env.SokobanEnv if image else WithoutImage
    env = build(dim_room=side, max_steps=100, num_boxes=boxes, reset=False)
    draw, done, seconds = Random(seed), 0, 0.0
    for _ in range(episodes):
        with contextlib.redirect_stdout(io.StringIO()):  # it prints when a room fails
            env.reset()
        actions = draw.choices((1, 2, 3, 4), k=100)
        began = time.process_time()
        for action in actions:
            _, _, over, _ = env.step(action)
            done += 1
            if over:
                break
        seconds += time.process_time() - began
    return done, seconds


def lake_steps(render: bool, episodes: int, seed: int) -> tuple[int, float]:
    """Random steps on slippery 4x4 lakes, with the text picture after each or without; resets are not timed."""
    draw, done, seconds = Random(seed), 0, 0.0
    for episode in range(episodes):
        board = generate_random_map(size=4, p=0.8, seed=seed * episodes + episode)
        env = FrozenLakeEnv(render_mode="ansi", desc=board, is_slippery=True)
        env.reset(seed=episode)
        actions = draw.choices((0, 1, 2, 3), k=100)
        began = time.process_time()
        for action in actions:
            _, _, terminated, _, _ = env.step(action)
            if render:
                env.render()
            done += 1
            if terminated:
                break
        seconds += time.process_time() - began
    return done, seconds


JOBS: dict[str, Callable[..., tuple[int, float]]] = {
    "rooms": rooms,
    "sokoban_steps": sokoban_steps,
    "lake_steps": lake_steps,
}

if __name__ == "__main__":
    for line in sys.stdin:
        job = json.loads(line)
        count, seconds = JOBS[job["job"]](**job["arguments"])
        print(json.dumps({"count": count, "seconds": seconds}), flush=True)
