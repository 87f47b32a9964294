"""A worker process: a stage behind a pipe. Started by :mod:`starpo.rollout.workers`.

    python -m starpo.rollout.worker DESCRIPTOR PARENT

Messages to it: first a ``Reading``, then lists of requests, ``"clear"`` or None (end). Messages from it: ``ready``
once, ``pulse`` before each call into an environment, ``answer`` per request, ``fatal`` instead of one.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

from starpo.environments.contract import ContractError
from starpo.errors import UserError
from starpo.rollout.processes import run
from starpo.rollout.stage import Outcome, Stage


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


if __name__ == "__main__":
    run(serve)
