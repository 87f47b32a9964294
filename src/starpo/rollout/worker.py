"""A worker process: a stage behind a pipe. Started by :mod:`starpo.rollout.workers`.

    python -m starpo.rollout.worker DESCRIPTOR PARENT

Messages to it: first a ``Reading``, then lists of requests, ``"clear"`` or None (end). Messages from it: ``ready``
once, ``pulse`` before each call into an environment, ``answer`` per request, ``fatal`` instead of one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

from starpo.environments.contract import ContractError
from starpo.errors import UserError
from starpo.rollout.stage import Outcome, Stage

#: Seconds between looks at whether the parent is still there.
WATCH_SECONDS = 0.5


def serve(connection: Connection) -> None:
    """Answer requests until the pipe closes or None arrives."""

    def pulse(kind: str, partial: Outcome | None) -> None:
        connection.send(("pulse", kind, partial))

    stage = Stage(connection.recv(), pulse)
    connection.send(("ready", None, None))
    while (message := connection.recv()) is not None:
        if message == "clear":
            stage.clear()
            continue
        for request in message:
            try:
                connection.send(("answer", None, stage.do(request)))
            except (ContractError, UserError) as error:
                connection.send(("fatal", type(error).__name__, str(error)))
                break
    stage.close()


def _watch(parent: int) -> None:
    """End with the parent, also while an environment never returns."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def main() -> None:
    """Serve on the inherited descriptor."""
    # Ctrl-C goes to the whole terminal group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, parent = map(int, sys.argv[1:3])
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    try:
        serve(Connection(descriptor))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent is gone; nothing is left to tell anyone


if __name__ == "__main__":
    main()
