"""What a worker process is doing at the moment, in a file that outlives it: seen without a message per call.

The worker writes before each call into an environment; its parent reads where an answer is late or the worker died.
"""

from __future__ import annotations

import os
import pickle
import struct
import time
import zlib
from dataclasses import dataclass
from typing import Any, Final

_HEAD: Final = struct.Struct("<II")


@dataclass(frozen=True)
class Progress:
    """A call into an environment that began."""

    request: int
    """Number of the request that it belongs to, from 0 since the process started."""
    what: str
    """``build``, ``copy``, ``close`` or the name of another method."""
    partial: Any
    """What the request came to before this call, if it has several."""
    began: float
    """Monotonic seconds."""


def write(descriptor: int, request: int, what: str, partial: Any) -> None:
    """Say in the file that the call ``what`` begins now."""
    content = pickle.dumps(Progress(request, what, partial, time.monotonic()))
    os.pwrite(descriptor, _HEAD.pack(len(content), zlib.crc32(content)) + content, 0)


def read(descriptor: int) -> Progress | None:
    """The call that began last; None before the first, and while it is being written."""
    head = os.pread(descriptor, _HEAD.size, 0)
    if len(head) < _HEAD.size:
        return None
    length, checksum = _HEAD.unpack(head)
    content = os.pread(descriptor, length, _HEAD.size)
    if len(content) < length or zlib.crc32(content) != checksum:
        return None
    progress: Progress = pickle.loads(content)
    return progress
