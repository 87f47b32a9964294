"""``kedro run --supervise``: the same command in a process of its own, begun again once where that one was lost."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from starpo.app.terminal.console import console
from starpo.app.watchdog import HUNG

OPTION: Final = "--supervise"
#: Signals by which a person or a scheduler ends a run; passed on, and never answered by another start.
_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def supervise(arguments: Sequence[str]) -> int:
    """Run ``kedro`` with ``arguments``, and once more where it hung or was killed; its exit status, as a shell's."""
    command = [sys.executable, "-m", "kedro", *(each for each in arguments if each != OPTION)]
    code, ended = _run(command)
    if not ended and (why := _lost(code)):
        console().print(
            f"--supervise: the run {why}; it is started again, once, and goes on from what is stored",
            style="yellow" if console().is_terminal else None,
            highlight=False,
            soft_wrap=True,
        )
        code, _ = _run(command)
    return code if code >= 0 else 128 - code


def _lost(code: int) -> str:
    """How a process was lost that returned ``code``; empty: it ended by itself, or was asked to."""
    if code == HUNG:
        return f"hung and ended itself (exit status {HUNG})"
    if code < 0 and -code not in _ENDS:
        return f"was killed by signal {signal.Signals(-code).name}"
    return ""


def _run(command: list[str]) -> tuple[int, bool]:
    """Return code of ``command``, and whether it was told to end by a signal that was passed on."""
    passed = []
    # In a process group of its own, so that Ctrl-C reaches it once: from here.
    process = subprocess.Popen(command, process_group=0)

    def pass_on(number: int, _: Any) -> None:
        passed.append(number)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    # What is ignored stays so, as under nohup.
    heard = [number for number in _ENDS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in heard}
    try:
        return process.wait(), bool(passed)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
