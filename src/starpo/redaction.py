"""Passwords and tokens are never printed: what is said passes here on its way to a terminal, a log or a store.

A secret is known by its shape (``scheme://user:secret@host``), by its name in the process environment
(``…_PASSWORD``, ``…_TOKEN``, ``…_SECRET``, ``…_ACCESS_KEY``), or because whoever read it said so (:func:`keep_secret`).
"""

from __future__ import annotations

import base64
import logging
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

MASK = "***"
_IN_URL = re.compile(
    r"(?P<user>:/{1,2}[^\s/:@\"'<>]*):(?P<secret>[^\s/\"'<>]+)@"
)  # one slash: once it was a Path
_NAMES = re.compile(r"(?:^|_)(?:PASSWORD|PASSWD|TOKEN|SECRET|API_KEY|ACCESS_KEY)$")
_SHORTEST = 4
"""Characters: a shorter secret would be found in every other word; in a URL it is hidden all the same."""
_SHORTEST_IN_ENVIRONMENT = 8
"""Characters: not everything that is called so is a secret (``true``)."""

_known: set[str] = set()


def keep_secret(secret: str, user: str | None = None) -> None:
    """Hide ``secret`` from now on, also percent-encoded and, with its ``user``, as HTTP sends the two."""
    if len(secret) >= _SHORTEST:
        _known.update({secret, unquote(secret), quote(secret, safe="")})
        if user is not None:
            _known.add(base64.b64encode(f"{user}:{secret}".encode()).decode())


def redact(text: str) -> str:
    """``text`` without secrets.

    >>> redact("cannot reach https://ann:hunter22@host/x")
    'cannot reach https://ann:***@host/x'
    """
    for secret in _secrets():
        text = text.replace(secret, MASK)
    return _IN_URL.sub(rf"\g<user>:{MASK}@", text)


class RedactingFormatter(logging.Formatter):
    """A formatter of logs that hides secrets, in tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        """As ``logging`` formats ``record``, without secrets."""
        return redact(super().format(record))


def redact_file(path: Path, start: int = 0) -> None:
    """Overwrite secrets in ``path`` from byte ``start`` on by asterisks, as many as they have bytes.

    Other processes may go on appending to the file meanwhile.
    """
    if not path.exists():
        return
    with path.open("r+b") as file:
        file.seek(start)
        # One character a byte, so that places in the text are places in the file.
        text = file.read().decode("latin-1")
        found = [match.span("secret") for match in _IN_URL.finditer(text)]
        for secret in _secrets():
            as_bytes = re.escape(secret.encode().decode("latin-1"))
            found += [match.span() for match in re.finditer(as_bytes, text)]
        for begin, end in found:
            file.seek(start + begin)
            file.write(b"*" * (end - begin))


def _secrets() -> list[str]:
    """All known ones, the longest first: one may be part of another."""
    named = {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST_IN_ENVIRONMENT and _NAMES.search(name)
    }
    return sorted(_known | named, key=len, reverse=True)
