"""One side of ``environments.py``: this project's environments. Reads jobs from stdin, writes timings to stdout.

Seconds are the processor's, not the clock's: other work on the machine hardly lengthens them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from random import Random

from starpo.environments.base import TextEnvironment
from starpo.environments.registry import make

#: The tasks of the two room jobs and the two Sokoban step jobs.
SOKOBAN = {"6x6": "sokoban_paper", "8x8": "sokoban_large_paper"}


def rooms(size: str, count: int, seed: int) -> tuple[int, float]:
    """``count`` resets: a new room each, its text included."""
    env = make(SOKOBAN[size])
    began = time.process_time()
    for number in range(count):
        env.reset(seed=seed * count + number)
    return count, time.process_time() - began


def sokoban_steps(size: str, image: bool, episodes: int, seed: int) -> tuple[int, float]:
    """Random steps to the end of each episode, the board's text included; ``image`` is the peer's alone."""
    return _steps(make(SOKOBAN[size]), 100, episodes, seed)


def lake_steps(render: bool, episodes: int, seed: int) -> tuple[int, float]:
    """Random steps on slippery 4x4 lakes, the board's text always included."""
    return _steps(make("frozen_lake"), 100, episodes, seed)


def _steps(env: TextEnvironment, limit: int, episodes: int, seed: int) -> tuple[int, float]:
    """Steps and the seconds spent in them; resets are not timed."""
    draw, done, seconds = Random(seed), 0, 0.0
    for episode in range(episodes):
        env.reset(seed=seed * episodes + episode)
        actions = draw.choices(env.action_names, k=limit)
        began = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            done += 1
            if terminated or truncated:
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
