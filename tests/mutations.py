"""Do the tests bite? Try the faults of ``mutations.toml`` one at a time and say which test catches each.

    python tests/mutations.py [--only NAME ...] [--jobs N]

The working tree stays as it is: a fault lives in a temporary copy of the code, put first on the path. The copy holds
``pipelines/`` inside the package, where they are found before the installed mapping is asked. Each fault is tried in
a process of its own, forked from one in which the large libraries are imported already.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
SECONDS = 600
"""A fault's tests may take this long; a fault that makes them hang is caught too."""
LIBRARIES = (
    "torch",
    "pandas",
    "pyarrow.parquet",
    "transformers",
    "hypothesis",
    "pydantic",
    "gymnasium",
    "scipy",
)
"""What most tests import, and what a mutated copy of the code has no part in."""


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


class _FirstFailure:
    """Pytest's plugin that remembers the first test or file that failed."""

    name: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.name is None:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.name is None:
            self.name = report.nodeid


def _try(fault: dict[str, Any], folder: str, answer: Any) -> None:
    """In the fault's process: run its tests on a mutated copy in ``folder``; send pytest's status and what failed."""
    code = Path(folder) / "src"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "src" / "starpo", code / "starpo", ignore=ignored)
    shutil.copytree(PROJECT / "pipelines", code / "starpo" / "pipelines", ignore=ignored)
    faulty = Path(folder) / fault["file"]
    faulty.write_text(faulty.read_text().replace(fault["before"], fault["after"]))
    sys.path.insert(0, str(code))
    sys.dont_write_bytecode = True
    # For the processes that tests start.
    os.environ |= {"PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"}
    with open(Path(folder) / "output", "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    found = _FirstFailure()
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    answer.send((int(pytest.main([*options, *fault["tests"]], plugins=[found])), found.name))


def caught_by(fault: dict[str, Any]) -> str | None:
    """The first test that fails under ``fault``; None if all pass."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        here, there = context.Pipe()
        process = context.Process(target=_try, args=(fault, folder, there))
        process.start()
        there.close()
        try:
            if not here.poll(SECONDS):
                return f"no end within {SECONDS} s"
            status, failed = here.recv()
        except EOFError:
            status, failed = None, None
        finally:
            process.kill()
            process.join()
        if status == pytest.ExitCode.OK:
            return None
        if failed is None:
            output = (Path(folder) / "output").read_text()
            raise RuntimeError(f"{fault['name']}: pytest ended with {status}:\n{output}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these faults of the list")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="faults at a time")
    arguments = parser.parse_args()
    listed = read_list()
    faults = [fault for fault in listed["fault"] if not arguments.only or fault["name"] in arguments.only]
    if arguments.only and (unknown := {*arguments.only} - {fault["name"] for fault in faults}):
        parser.error(f"no fault is named {', '.join(sorted(unknown))}")
    if lost := lost_fragments(faults):
        print("Fragments that are no longer in the source; correct them in mutations.toml:", *lost, sep="\n")  # noqa: T201
        return 1
    os.chdir(PROJECT)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for library in LIBRARIES:
        importlib.import_module(library)
    caught = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for fault, test in zip(faults, pool.map(caught_by, faults), strict=True):
            caught += test is not None
            print(f"{fault['name']:24} {fault['kind']:45} {test or 'NOT CAUGHT'}", flush=True)  # noqa: T201
    print(f"{caught} of {len(faults)} caught")  # noqa: T201
    return int(caught < (len(faults) if arguments.only else listed["least_caught"]))


if __name__ == "__main__":
    sys.exit(main())
