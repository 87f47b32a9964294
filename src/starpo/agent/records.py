"""Records of one trajectory: the token ledger, turn by turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class StopReason(StrEnum):
    """Why a turn or a trajectory ended."""

    STOP = "stop"  # turn: the policy ended it
    LENGTH = "length"  # turn or trajectory: out of tokens
    TURN_LIMIT = "turn_limit"
    ACTION_LIMIT = "action_limit"
    TERMINATED = "terminated"  # the environment ended the episode
    ENVIRONMENT_ERROR = "environment_error"


@dataclass(frozen=True)
class Turn:
    """One generation span with what it was shown and what came of it."""

    observation: str
    """State text before the turn."""
    context_ids: tuple[int, ...]
    """Token ids added before this turn (system, environment, template), or at a ``chain_start`` the whole prompt;
    never trained."""
    response_ids: tuple[int, ...]
    """Token ids exactly as sampled, the turn end included where it was sampled."""
    response_logprobs: tuple[float, ...]
    """Log-probabilities of those under the sampling distribution, nats."""
    response: str
    """Their text, for people and the parser."""
    stop_reason: StopReason
    """``stop`` or ``length``."""
    sampling_seed: int
    """Seed of this turn's tokens."""
    thought: str = ""
    """Parsed thought."""
    actions: tuple[str, ...] = ()
    """Parsed legal actions."""
    executed: tuple[str, ...] = ()
    """Actions that were really done."""
    format_valid: bool = False
    """The parser's verdict."""
    reward: float = 0.0
    """Sum of the environment's rewards in this turn."""
    next_observation: str = ""
    """State text after the turn."""
    terminated: bool = False
    """The environment ended the episode in this turn."""
    truncated: bool = False
    """A limit ended the trajectory after this turn."""
    success: bool = False
    """The task is solved after this turn."""
    effective: int = 0
    """Executed actions that changed something."""
    info: dict[str, Any] = field(default_factory=dict)
    """The environment's last info."""
    chain_start: bool = False
    """The prompt is ``context_ids`` alone, a window on the last turns; else they go on where the turn before ended."""


@dataclass(frozen=True)
class Address:
    """Where a trajectory belongs."""

    environment: str
    """Registered name."""
    split: str
    """train, validation or test."""
    stream: str
    """Suite or split whose seeds were used."""
    iteration: int
    """Iteration of the run; 0 in evaluation."""
    group: int
    """Prompt index."""
    member: int
    """Index within the group."""


@dataclass(frozen=True)
class Chain:
    """Tokens that see each other under causal attention: a whole trajectory, or a window of it."""

    token_ids: list[int]
    """Context and sampled ids in order."""
    sampled: list[bool]
    """Which of them the policy sampled here; the turns that a window repeats are context."""


@dataclass
class Trajectory:
    """A whole episode as a chain of segments: context, sampled, context, sampled …"""

    address: Address
    instance_seed: int
    """Seed that ``reset`` got."""
    dynamics_seed: int
    """Seed of the episode's luck."""
    turns: list[Turn] = field(default_factory=list)
    """Turns in order."""
    stop_reason: StopReason | None = None
    """Why the trajectory ended."""
    error: str = ""
    """Text of the environment's exception, where one ended it."""
    seconds: list[float] = field(default_factory=list, compare=False)
    """Wall-clock time of each turn, from its request to its environment's answer; in no table, since clocks differ."""

    def chains(self) -> list[Chain]:
        """Its token chains in order: one, and one more for each turn at which the window moved."""
        chains: list[Chain] = []
        for turn in self.turns:
            if turn.chain_start or not chains:
                chains.append(Chain([], []))
            chains[-1].token_ids.extend((*turn.context_ids, *turn.response_ids))
            chains[-1].sampled.extend([False] * len(turn.context_ids) + [True] * len(turn.response_ids))
        return chains
