"""Fixtures of all test folders: recordings of the peers and a tiny policy built once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from typing import Any

import pytest

# Before torch and vLLM are imported: two cores are shared, and threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from builders import build_policy
from hypothesis import settings
from projects import SMOKE, Command, Project, new_project
from recordings import recording

from starpo.store.policies import Policy

# A job in a shell's background ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example pays for imports, and the machine is shared: no deadline per example.
settings.register_profile("starpo", deadline=None, derandomize=True)
settings.load_profile("starpo")


@pytest.hookimpl(wrapper=True)  # before any other hook: xdist's own is called first among the plain ones
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, Any, Any]:
    """With several workers, tests that share what is expensive go to one: the smoke run's, which come first because
    they take longest, else those of a file."""

    def shared(item: pytest.Item) -> str:
        needed = set(getattr(item, "fixturenames", ()))
        return "smoke run" if needed & {"smoke", "project"} else item.path.as_posix()

    items.sort(key=lambda item: shared(item) != "smoke run")
    for item in items:
        item.add_marker(pytest.mark.xdist_group(shared(item)))
    return (yield)


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, Any]]:
    """Loader of a recorded file by name."""
    return recording


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A warm-started one-layer policy for the lake: knows the answer format, plays badly."""
    return build_policy(tmp_path_factory.mktemp("policies"))


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project of the smoke run; its runs share one base policy."""
    return new_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def smoke(project: Project) -> Command:
    """``kedro run --env=smoke --pipeline=train_starpo_s``, the command that CI runs, in ``project``."""
    done = project.run(*SMOKE)
    assert done.code == 0, done.text
    return done
