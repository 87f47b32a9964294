"""Descriptions and success of Gymnasium's toy-text environments, addressed as ``gymnasium_texts:function``."""

from __future__ import annotations

from typing import Any


def grid(env: Any, observation: Any) -> str:
    """FrozenLake and CliffWalking: the cell's number."""
    return f"cell {int(observation)}"


def taxi(env: Any, observation: Any) -> str:
    row, column, passenger, destination = env.decode(int(observation))
    return f"taxi {row},{column} passenger {passenger} destination {destination}"


def hand(env: Any, observation: Any) -> str:
    mine, dealer, ace = observation
    return f"mine {mine} dealer {dealer} ace {ace}"


def won(env: Any, reward: float, terminated: bool) -> bool:
    return terminated and reward > 0


def cells(env: Any, observation: Any) -> str:
    return str(observation["cell"])


def silent(env: Any, observation: Any) -> None:
    """No text at all."""
