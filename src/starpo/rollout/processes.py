"""Helper processes for environments: started by ``exec``, spoken to over a pipe, never outliving their parent.

Not ``multiprocessing``, whose children import the main module first: that of a training would bring torch and Kedro
along.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Final

#: Seconds that a process gets to end by itself.
FAREWELL_SECONDS: Final = 2.0
#: Seconds between looks at whether the parent is still there.
WATCH_SECONDS: Final = 0.5

Helper = tuple[subprocess.Popen[bytes], Connection]
"""A process and our end of its pipe."""


def start(module: str) -> Helper:
    """``python -m module`` beside this process; the module hands its serving function to :func:`run`."""
    ours, theirs = socket.socketpair()
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    try:
        popen = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
        )
    finally:
        theirs.close()
    return popen, Connection(ours.detach())


def reap(helpers: Iterable[Helper]) -> None:
    """Close the pipes, on which an idle helper ends, and make sure that it does."""
    helpers = list(helpers)
    for _, connection in helpers:
        with contextlib.suppress(OSError):
            connection.close()
    for popen, _ in helpers:
        try:
            popen.wait(FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()


def run(serve: Callable[[Connection], None]) -> None:
    """The main function of a helper: ``serve`` its parent until the pipe closes."""
    # Ctrl-C goes to the whole terminal group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, parent = map(int, sys.argv[1:3])
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    try:
        serve(Connection(descriptor))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent is gone; nothing is left to tell anyone


def _watch(parent: int) -> None:
    """End with the parent, also while an environment never returns."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)
