"""A worker process: answers requests to one object, in their order. Started by :mod:`starpo.rollout.processes`.

    python -m starpo.rollout.worker DESCRIPTOR PROGRESS PARENT

Messages to it: first a function that builds the object, such as ``partial(LocalEnvironments, reading)``, then lists of
requests. Messages from it: ``ready`` once, then for each request what the object's ``do`` returned, or a
:class:`Raised`. It ends when the pipe closes, and with its parent.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Final

from starpo.rollout import call_progress
from starpo.rollout.calls import Raised

#: Seconds between looks at whether the parent is still there.
WATCH_SECONDS: Final = 0.5


def serve(connection: Connection, descriptor: int) -> None:
    """Answer requests until the pipe closes."""
    answered = 0

    def note(what: str, partial: Any = None) -> None:
        call_progress.write(descriptor, answered, what, partial)

    server = connection.recv()(note)
    connection.send("ready")
    try:
        while True:
            for request in connection.recv():
                try:
                    answer = server.do(request)
                except BaseException as error:  # whatever a user's code raises is an answer
                    answer = Raised.of(error)
                _send(connection, answer, f"{server.about(request)}'s result")
                answered += 1
    finally:
        server.close()


def _send(connection: Connection, answer: Any, what: str) -> None:
    try:
        connection.send(answer)
    except OSError:
        raise
    except Exception as error:  # pickling runs code of others
        text = f"{what} cannot be sent to another process ({type(error).__name__}: {error})"
        connection.send(Raised("ContractError", text, kept=True))


def _watch(parent: int) -> None:
    """End with the parent, also while an environment never returns."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    # Ctrl-C goes to the whole terminal group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ours, noted, parent = map(int, sys.argv[1:4])
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    try:
        serve(Connection(ours), noted)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent is gone; nothing is left to tell anyone
