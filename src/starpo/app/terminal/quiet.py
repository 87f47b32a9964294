"""Keeps the terminal readable: libraries' chatter goes to the run's log file."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from starpo.redaction import RedactingFormatter, redact_file

_CHATTY = (
    "vllm",
    "DeepSpeed",
    "deepspeed",
    "mlflow",
    "alembic",
    "transformers",
    "kedro",
    "torch",
    "gloo",
    "root",
)


def log_to_file(path: Path) -> logging.Handler:
    """Send everything that libraries log to ``path``; only warnings of our own still reach the terminal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    redact_file(path)  # what a process printed that did not live to redact it
    handler = logging.FileHandler(path)
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    for name in _CHATTY:
        logger = root if name == "root" else logging.getLogger(name)
        for existing in list(logger.handlers):
            if existing is not handler and not _is_ours(existing):
                logger.removeHandler(existing)
    warnings.filterwarnings("ignore", category=FutureWarning)
    return handler


def redact_terminal() -> None:
    """Hide secrets in what is logged to the terminal; Kedro's configuration of logging may name no class of ours."""
    for handler in logging.getLogger().handlers:
        if _is_ours(handler):
            handler.setFormatter(RedactingFormatter())


def _is_ours(handler: logging.Handler) -> bool:
    return handler.name == "terminal"


@contextlib.contextmanager
def native_output_to(path: Path) -> Iterator[None]:
    """Within the block, what native code or a library prints to stdout and stderr goes to ``path``.

    Works on file descriptors, because vLLM's and torch's C++ parts bypass Python's streams. Secrets are overwritten
    when the block ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with path.open("ab") as file:
        start = file.tell()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            for descriptor in saved:
                os.close(descriptor)
            redact_file(path, start)
