"""Fixtures of all test folders: recordings of the peers and a tiny policy built once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Before torch and vLLM are imported: two cores are shared, and threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from builders import build_policy
from hypothesis import HealthCheck, settings
from projects import SMOKE, Command, Project, new_project
from recordings import recording

from starpo.store.policies import Policy

# A job in a shell's background ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example pays for imports, and the machine is shared: no deadline, and slow examples are none too many.
ANY_SPEED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("starpo", **ANY_SPEED, derandomize=True, max_examples=40)
settings.register_profile("thorough", **ANY_SPEED, max_examples=400)
settings.load_profile("starpo")


SMOKE_RUN = re.compile(r'usefixtures\("smoke"|\bsmoke: Command')


def group_of(file: Path) -> str:
    """Tests of one group go to one worker, because they share what is expensive: the smoke run, else their file's."""
    return "smoke run" if SMOKE_RUN.search(file.read_text()) else file.as_posix()


class Groups(LoadScopeScheduling):
    """xdist's schedule by groups; its own ``loadgroup`` finds none under the present pytest."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(self.config.rootpath / nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Instead of what ``--dist`` names."""
    return Groups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no worker waits for the other's last group: the smoke run's tests, then
    the other files with an engine or a training, those of whole pipelines before the rooms'."""
    groups = {item.path: group_of(item.path) for item in items}
    slow = {groups[item.path] for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> tuple[bool, bool, bool]:
        group = groups[item.path]
        return group != "smoke run", group not in slow, item.path.parent.name not in {"studies", "pipelines"}

    items.sort(key=rank)


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
