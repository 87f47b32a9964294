"""Do the tests bite? Try the faults of ``mutations.toml`` one at a time and say which test catches each.

    python tests/mutations.py [--only NAME]

The working tree stays as it is: a fault lives in a temporary copy of the code, put first on PYTHONPATH. The copy
holds ``pipelines/`` inside the package, where they are found before the installed mapping is asked.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
SECONDS = 300
"""A fault's tests may take this long; a fault that makes them hang is caught too."""


def read_list() -> dict[str, Any]:
    return tomllib.loads(LIST.read_text())


def lost_fragments(faults: list[dict[str, Any]]) -> list[str]:
    """The faults whose original fragment does not occur exactly once in its file any more."""
    lost = []
    for fault in faults:
        found = (PROJECT / fault["file"]).read_text().count(fault["before"])
        if found != 1:
            lost.append(f"{fault['name']}: occurs {found} times in {fault['file']}: {fault['before']!r}")
    return lost


def caught_by(fault: dict[str, Any]) -> str | None:
    """The first test that fails under ``fault``; None if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "src"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / "src" / "starpo", code / "starpo", ignore=ignored)
        shutil.copytree(PROJECT / "pipelines", code / "starpo" / "pipelines", ignore=ignored)
        faulty = Path(folder) / fault["file"]
        faulty.write_text(faulty.read_text().replace(fault["before"], fault["after"]))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
        environment = os.environ | {
            "PYTHONPATH": str(code),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        try:
            done = subprocess.run(
                [*command, *fault["tests"]],
                cwd=PROJECT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {SECONDS} s"
    if done.returncode == 0:
        return None
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if first is None:
        raise RuntimeError(
            f"{fault['name']}: pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return first[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", help="one fault of the list")
    only = parser.parse_args().only
    listed = read_list()
    faults = [fault for fault in listed["fault"] if only in (None, fault["name"])]
    if not faults:
        parser.error(f"no fault is named {only!r}")
    if lost := lost_fragments(faults):
        print("Fragments that are no longer in the source; correct them in mutations.toml:", *lost, sep="\n")  # noqa: T201
        return 1
    caught = 0
    for fault in faults:
        test = caught_by(fault)
        caught += test is not None
        print(f"{fault['name']:24} {fault['kind']:45} {test or 'NOT CAUGHT'}", flush=True)  # noqa: T201
    print(f"{caught} of {len(faults)} caught")  # noqa: T201
    return int(caught < (1 if only else listed["least_caught"]))


if __name__ == "__main__":
    sys.exit(main())
