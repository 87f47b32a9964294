"""The measure of memory that other tests rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from process_memory import peak_bytes, resident_bytes

MIB = 2**20


def test_a_large_parent_does_not_show_in_the_peak_of_its_child() -> None:
    held = bytearray(b"1") * (256 * MIB)
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from process_memory import peak_bytes; print(peak_bytes())"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    assert resident_bytes() > len(held) > int(done.stdout)


def test_the_peak_stays_when_memory_is_given_back() -> None:
    held = bytearray(b"1") * (256 * MIB)
    full = resident_bytes()
    del held
    assert peak_bytes() > full - 32 * MIB > resident_bytes() + 128 * MIB
