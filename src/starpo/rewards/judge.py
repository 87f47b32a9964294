"""A reward term that asks a language model, behind an OpenAI-compatible endpoint, how good a turn was."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Literal

from starpo.rewards.terms import Group
from starpo.rewards.trajectory import Missing, Trajectory, Turn

logger = logging.getLogger(__name__)

_SCORE: Final = re.compile(r"score\W{0,5}(-?\d{1,6}(?:\.\d{1,6})?)", re.IGNORECASE)
#: More than any reply that says a score.
_MOST_BYTES: Final = 1 << 20
#: Of a failure, in the table.
_MOST_CHARACTERS: Final = 200
#: Statuses that another attempt may change.
_PASSING: Final = frozenset({408, 409, 425, 429, *range(500, 600)})


class Judge:
    """A number from 0 to 1 per turn, or per trajectory on its last turn, as a judging model gives it.

    Every request is asked once: replies lie in ``folder`` under the hash of their request. A call that fails gives a
    :class:`Missing`, and is asked again when the trajectory is scored again. After ``give_up_after`` failures in a row
    the rest of a table is not asked.
    """

    def __init__(
        self,
        *,
        url: str,
        model: str,
        rubric: Path,
        per: Literal["turn", "trajectory"] = "turn",
        lowest: float = 0.0,
        highest: float = 10.0,
        temperature: float = 0.0,
        max_tokens: int = 256,
        key_variable: str | None = None,
        timeout_seconds: float = 30.0,
        attempts: int = 2,
        parallel: int = 8,
        give_up_after: int = 8,
        folder: Path | None = None,
    ) -> None:
        """Set up, without asking anything.

        Args:
            url: the endpoint's base, such as ``http://localhost:8000/v1``.
            model: its name there.
            rubric: text file that says what a good turn is; the system message.
            per: what is judged by one request.
            lowest: score that becomes 0.
            highest: score that becomes 1.
            temperature: of the judge's sampling.
            max_tokens: of a reply.
            key_variable: environment variable that holds the endpoint's key; null: none is sent.
            timeout_seconds: longest wait for an answer, s.
            attempts: calls of one request before it counts as failed.
            parallel: requests at a time.
            give_up_after: failed requests in a row after which no more are sent.
            folder: where replies are kept; None: in memory.

        Raises:
            ValueError: a value out of range, a rubric that cannot be read, or a key that is not there.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url = {url!r} must begin with http:// or https://")
        if not lowest < highest:
            raise ValueError(f"lowest ({lowest:g}) must be below highest ({highest:g})")
        positive = {
            "timeout_seconds": timeout_seconds,
            "attempts": attempts,
            "parallel": parallel,
            "give_up_after": give_up_after,
            "max_tokens": max_tokens,
        }
        for name, value in positive.items():
            if value <= 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        if key_variable is not None and not os.environ.get(key_variable):
            raise ValueError(f"key_variable = {key_variable!r}: this environment variable is not set")
        try:
            text = rubric.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"rubric = {str(rubric)!r} cannot be read ({error})") from None
        asked = f"End your reply with one line, Score: x, where x is a number from {lowest:g} to {highest:g}."
        self._system = f"{text}\n\n{asked}"
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._settings = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._per, self._range = per, (lowest, highest)
        self._key = os.environ[key_variable] if key_variable else None
        self._timeout, self._attempts, self._parallel = timeout_seconds, attempts, parallel
        self._give_up_after, self._in_a_row, self._lock = give_up_after, 0, threading.Lock()
        self._folder = folder
        self._replies: dict[str, str | Missing] = {}

    def prepare(self, trajectories: Iterable[Trajectory]) -> None:
        """Ask for all of them, ``parallel`` at a time."""
        wanted = dict.fromkeys(request for each in trajectories for request in self._requests(each))
        with ThreadPoolExecutor(self._parallel) as pool:
            replies = list(pool.map(self._reply, wanted))
        self._replies = dict(zip(wanted, replies, strict=True))

    def __call__(self, trajectory: Trajectory, group: Group) -> Sequence[float | Missing]:
        """Per turn; with ``per: trajectory`` 0 on all turns but the last."""
        scores = [self._score(request) for request in self._requests(trajectory)]
        return scores if self._per == "turn" or not scores else [*[0.0] * (len(trajectory) - 1), *scores]

    def _requests(self, trajectory: Trajectory) -> list[str]:
        """The bodies of its requests as JSON, one per turn or one."""
        texts = [_told(number, turn) for number, turn in enumerate(trajectory.turns)]
        if self._per == "trajectory" and texts:
            texts = ["\n\n".join(texts)]
        return [
            json.dumps(
                self._settings
                | {
                    "messages": [
                        {"role": "system", "content": self._system},
                        {"role": "user", "content": text},
                    ]
                },
                sort_keys=True,
            )
            for text in texts
        ]

    def _score(self, request: str) -> float | Missing:
        if request not in self._replies:
            self._replies[request] = self._reply(request)
        reply = self._replies[request]
        if isinstance(reply, Missing):
            return reply
        found, (lowest, highest) = _SCORE.findall(reply), self._range
        if not found:
            return Missing(_short(f"the reply names no score: {reply}"))
        if not lowest <= float(found[-1]) <= highest:
            return Missing(f"the score {found[-1]} is not from {lowest:g} to {highest:g}")
        return (float(found[-1]) - lowest) / (highest - lowest)

    def _reply(self, request: str) -> str | Missing:
        """What the endpoint says to a request, now or when it was first asked."""
        name = hashlib.sha256(f"{self._url}\n{request}".encode()).hexdigest()
        kept = None if self._folder is None else self._folder / f"{name}.json"
        if kept is not None and (reply := _kept_reply(kept)) is not None:
            return reply
        if self._in_a_row >= self._give_up_after:
            return Missing(f"not asked: the {self._in_a_row} requests before failed")
        reply_or_reason = self._ask(request)
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if isinstance(reply_or_reason, Missing) else 0
        if kept is not None and isinstance(reply_or_reason, str):
            _keep(kept, request, reply_or_reason)
        return reply_or_reason

    def _ask(self, request: str) -> str | Missing:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        reason = ""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(0.5 * 2**attempt)
            try:
                call = urllib.request.Request(self._url, request.encode(), headers)
                with urllib.request.urlopen(call, timeout=self._timeout) as answer:
                    body: Any = json.loads(answer.read(_MOST_BYTES))
                reply = body["choices"][0]["message"]["content"]
                if isinstance(reply, str):
                    return reply
                reason = f"the reply's content is {reply!r}, no text"
            except urllib.error.HTTPError as error:
                reason = f"HTTP {error.code} {error.reason}"
                if error.code not in _PASSING:
                    break
            except (OSError, HTTPException) as error:
                reason = f"{type(error).__name__}: {error}"
            except (ValueError, LookupError, TypeError) as error:
                reason = f"the answer is no chat completion ({type(error).__name__}: {error})"
        return Missing(_short(reason))


def _told(number: int, turn: Turn) -> str:
    return (
        f"Turn {number + 1}\nObservation:\n{turn.observation}\nThought:\n{turn.thought or '(none)'}\n"
        f"Actions: {', '.join(turn.executed) or '(none)'}\nNext observation:\n{turn.next_observation}"
    )


def _short(reason: str) -> str:
    return " ".join(reason.split())[:_MOST_CHARACTERS]


def _kept_reply(path: Path) -> str | None:
    """The reply in a file; None where there is no such file, or it was damaged and is asked for again."""
    try:
        reply = json.loads(path.read_text(encoding="utf-8"))["reply"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return reply if isinstance(reply, str) else None


def _keep(path: Path, request: str, reply: str) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({"request": json.loads(request), "reply": reply}), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        logger.warning("%s: a judge's reply could not be kept (%s); it is asked for again", path, error)
