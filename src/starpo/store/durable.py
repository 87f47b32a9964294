"""Writing a file or a folder whole: whoever reads finds the old one or the new one, after a power cut too."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from starpo.errors import UserError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
#: Libraries that are not written in Python say it in words only.
_NUMBER = re.compile(r"(?:os error|errno) (\d+)", re.IGNORECASE)


@contextlib.contextmanager
def replacing(path: Path, size: int | None = None) -> Iterator[Path]:
    """A name beside ``path`` for the block to write a file or a folder under, which then becomes ``path``.

    It is on the disk before it has its name. Where the block fails nothing of it is left.

    Args:
        path: what is made or replaced.
        size: bytes that it will have, for the message when the disk is full; None: not known.

    Raises:
        UserError: the disk is full, or the place may not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary)
        yield temporary
        for written in [*temporary.rglob("*"), temporary] if temporary.is_dir() else [temporary]:
            _sync(written)
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)
        _sync(path.parent)
    except BaseException as error:  # an interruption too
        written_bytes = _size(temporary)
        with contextlib.suppress(OSError):
            _remove(temporary)
        sentence = machine_fault(error, path, size or written_bytes)
        if sentence is None:
            raise
        raise UserError(sentence) from error


def write_text(path: Path, text: str) -> None:
    """Make or replace a text file, UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_line(path: Path, line: str) -> None:
    """Add a line to a text file; it is on the disk when this returns."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def remove_unfinished(folder: Path) -> None:
    """Delete what a killed process was writing under ``folder``."""
    for left in folder.rglob(".*.tmp"):
        _remove(left)


def machine_fault(error: BaseException, path: Path | None = None, size: int = 0) -> str | None:
    """The sentence for a full disk or a place that may not be written; None: ``error`` is something else.

    Args:
        error: what writing raised.
        path: what was written; None: what the error names.
        size: bytes of it, as far as known.
    """
    number = error.errno if isinstance(error, OSError) and error.errno else None
    if number is None and not isinstance(error, UserError) and (match := _NUMBER.search(str(error))):
        number = int(match[1])
    if path is None:
        named = getattr(error, "filename", None)
        path = Path(named) if isinstance(named, str) else None
    where = path or "a file"
    if number in _FULL:
        needed = f"at least {_in_words(size)} needed, " if size else ""
        return (
            f"{where}: no space left on the disk ({needed}{_in_words(_free(path))} free). What is written stays; "
            "make room, then the same command goes on."
        )
    if number in _FORBIDDEN:
        return f"{where}: {os.strerror(number)}. Make the folder writable, then the same command goes on."
    if number == errno.ENAMETOOLONG:
        return f"{where}: the file name is too long for the disk. Choose a shorter run.name."
    return None


def _free(path: Path | None) -> int:
    there = next(
        place
        for place in ((path or Path()).absolute(), *(path or Path()).absolute().parents)
        if place.exists()
    )
    return shutil.disk_usage(there).free


def _in_words(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    with contextlib.suppress(OSError):
        return sum(file.lstat().st_size for file in files if not file.is_dir())
    return 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
