"""What an engine must do for the episode loop: take token ids, give sampled ids with their log-probs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Sampling:
    """How the tokens of one turn are drawn."""

    temperature: float
    """Softmax temperature."""
    top_p: float
    """Nucleus mass."""
    max_tokens: int
    """Most tokens sampled."""
    seed: int
    """This turn's seed; tokens depend on it and on nothing else that was drawn."""


@dataclass(frozen=True)
class Completion:
    """One finished generation."""

    request: int
    """Number given at ``submit``."""
    token_ids: tuple[int, ...]
    """Sampled ids, the stop token included."""
    logprobs: tuple[float, ...]
    """Their log-probs under the sampling distribution, nats."""
    stopped: bool
    """True if a stop token ended it, False if it ran out of tokens."""


@dataclass(frozen=True)
class Held:
    """What a comparison of all sent tensors with the engine's came to, in Hugging Face names."""

    differing: tuple[str, ...]
    """Tensors of which the engine holds other values than were sent."""
    unproved: tuple[str, ...]
    """Tensors, sent or held, that could not be found on the other side and were not compared."""


class Engine(Protocol):
    """A generator of tokens that serves one policy at a time."""

    serves: str
    """Identity of the loaded weights (``run/step``), checked before every use."""

    def submit(self, request: int, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        """Queue a generation; ``request`` numbers must rise."""

    def poll(self) -> list[Completion]:
        """Work a little and return what finished, in order of request number."""

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs (T = 1) of every token after the first, given those before it.

        A sequence may be as long as the context less one token: vLLM scores a prompt while it generates.
        """

    def load(self, weights: Iterable[tuple[str, torch.Tensor]], identity: str) -> None:
        """Replace all weights, names as in the Hugging Face model."""

    def load_from(self, directory: Path, identity: str) -> None:
        """Replace all weights by those of a model directory."""

    def held(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Held:
        """Compare, in the engine's dtype and without tolerance, the weights it holds with ``weights``."""

    def sleep(self) -> None:
        """Give up device memory until the engine is used again, where it can."""

    def close(self) -> None:
        """Free everything."""
