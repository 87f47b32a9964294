"""Why MLflow's store does not work, in a few words."""

from __future__ import annotations

import re

from starpo.errors import UserError

_WORDS = (
    (r"Connection refused|ConnectionRefused|Errno 111", "nothing listens there"),
    (r"NameResolutionError|Name or service not known|getaddrinfo|name resolution", "there is no such host"),
    (r"timed? ?out|Timeout", "it accepts connections and does not answer"),
    (r"No route to host|Network is unreachable", "the network does not lead there"),
    (r"\b401\b|UNAUTHENTICATED|Unauthorized", "it refuses user name and password, or asks for them"),
    (r"\b403\b|PERMISSION_DENIED|Forbidden", "this user may not write there"),
    (r"database is locked", "another process holds a lock on the database"),
    (r"not a database|malformed", "the file is damaged or no SQLite database"),
    (r"unable to open database|Permission denied", "the file cannot be opened for writing"),
    (r"readonly database", "the file may only be read, or was deleted"),
    (r"No space left|disk is full", "the disk is full"),
    (r"out-of-date database schema", "another version of MLflow made the database: mlflow db upgrade"),
)


class StoreGone(UserError):
    """The database that a run is written to was deleted or replaced meanwhile."""


def cause(error: BaseException) -> str:
    """What is wrong, without line breaks: the known faults of stores in words, others as the library says them."""
    if isinstance(error, UserError):
        return cause(error.__cause__) if error.__cause__ else str(error)
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    text = " ".join(str(each) for each in chain)
    for pattern, words in _WORDS:
        if re.search(pattern, text):
            return words
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"
