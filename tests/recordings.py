"""Recordings of the peers' functions, see ``tests/golden/README.md``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"


def recording(name: str) -> dict[str, Any]:
    """Contents of a recorded file, such as ``bandit.json``."""
    return json.loads(gzip.decompress((GOLDEN / f"{name}.gz").read_bytes()))
