"""Golden data: what the peer's environments did, recorded once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden"


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, Any]]:
    """Loader of a golden file by name; skips the test where the recordings are not at hand."""

    def load(name: str) -> dict[str, Any]:
        path = GOLDEN / name
        if not path.exists():
            pytest.skip(f"no golden data at {path}")
        return json.loads(path.read_text())

    return load
