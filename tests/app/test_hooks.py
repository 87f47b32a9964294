"""Kedro hooks: the order in which they are called, and the times that are written of an iteration."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kedro.framework.hooks import hook_impl
from kedro.framework.hooks.manager import _create_hook_manager, _register_hooks
from pluggy import PluginManager

from starpo import settings
from starpo.app.hooks.clock import ClockHooks
from starpo.app.hooks.parameters import ParametersHooks
from starpo.app.hooks.run_record import RunRecordHooks
from starpo.store.layout import RunPaths


@pytest.fixture
def manager() -> PluginManager:
    """The hooks of ``settings.py`` as Kedro registers them."""
    created = _create_hook_manager()
    _register_hooks(created, settings.HOOKS)
    return created


def called(manager: PluginManager, name: str) -> list[str]:
    """Classes that implement the hook ``name``, in the order of their calls."""
    implementations = getattr(manager.hook, name).get_hookimpls()
    # Pluggy calls the last one first; wrappers stand at the end of its list.
    return [type(one.plugin).__name__ for one in reversed(implementations)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The record exists before anything is timed, printed or mirrored.
        ("before_pipeline_run", "RunRecord Clock Terminal Mirror"),
        # The terminal is taken away once everything was said.
        ("before_node_run", "Clock Watchdog Terminal NativeOutput"),
        ("after_node_run", "NativeOutput Clock Watchdog"),
        # The clock's wrapper has the times ready; a policy is announced before older ones are pruned.
        ("after_dataset_saved", "Clock Terminal Gate Mirror Retention"),
        # Tables, Data Docs, then MLflow, which takes a copy of them; the record says last that the run is over.
        ("after_pipeline_run", "Watchdog Terminal Gate Mirror RunRecord"),
        ("on_pipeline_error", "NativeOutput Watchdog Terminal Gate Mirror RunRecord"),
        ("on_node_error", "NativeOutput"),
    ],
)
def test_hooks_are_called_in_the_order_that_the_settings_say(
    manager: PluginManager, name: str, expected: str
) -> None:
    assert called(manager, name) == [f"{each}Hooks" for each in expected.split()]


def test_an_interruption_reaches_the_record_first_and_the_terminal_before_what_prints() -> None:
    told = [type(hook).__name__ for hook in reversed(settings.HOOKS) if hasattr(hook, "interrupted")]
    expected = ["RunRecord", "NativeOutput", "Watchdog", "Terminal", "Gate", "Mirror"]
    assert told == [f"{each}Hooks" for each in expected]


class Reporter:
    """A hook that reports what it sees of the clock."""

    def __init__(self, clock: ClockHooks) -> None:
        self._clock = clock
        self.seen: list[dict[str, float]] = []

    @hook_impl
    def after_dataset_saved(self, dataset_name: str) -> None:
        self.seen.append(dict(self._clock.iteration))


def save(manager: PluginManager, name: str, data: dict[str, Any]) -> None:
    manager.hook.after_dataset_saved(dataset_name=name, data=data, node=None)


def node(manager: PluginManager, name: str) -> None:
    what = {
        "node": SimpleNamespace(name=name),
        "catalog": None,
        "inputs": {},
        "is_async": False,
        "run_id": "",
    }
    manager.hook.before_node_run(**what)
    manager.hook.after_node_run(outputs={}, **what)


def test_reports_see_an_iteration_s_times_and_the_file_holds_theirs_as_well(tmp_path: Path) -> None:
    run = RunRecordHooks(ParametersHooks())
    run.root, run.name = tmp_path, "lake"
    RunPaths(tmp_path, "lake").record.parent.mkdir(parents=True)
    clock = ClockHooks(run)
    reporter = Reporter(clock)
    manager = _create_hook_manager()
    _register_hooks(manager, (reporter, clock))
    manager.hook.before_pipeline_run(run_params={}, pipeline=None, catalog=None)
    for iteration in (0, 1):
        node(manager, f"iter_{iteration:04d}.rollout")
        node(manager, f"iter_{iteration:04d}.update")
        save(manager, f"iter_{iteration:04d}.updates", {})
        save(
            manager,
            f"iter_{iteration:04d}.metrics",
            {"iteration": iteration, "rollout_tokens": 100, "seconds_update": 2.5, "seconds_sync": 0.5},
        )
    before, first, _, second = reporter.seen
    assert before == {}
    assert first["seconds_update"] == second["seconds_update"] == 2.5
    assert first["tokens_per_second"] == pytest.approx(100 / first["seconds_rollout"])
    lines = RunPaths(tmp_path, "lake").timings.read_text().splitlines()
    written = [json.loads(line) for line in lines]
    assert [one.pop("iteration") for one in written] == [0, 1]
    for seen, one in zip((first, second), written, strict=True):
        assert one.pop("seconds_mirror") >= 0
        assert one == {key: value for key, value in seen.items() if key != "tokens_per_second"}


def test_an_evaluation_s_time_belongs_to_no_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 100.0, 103.0, 104.0])
    monkeypatch.setattr("starpo.app.hooks.clock.time.perf_counter", lambda: next(now))
    run = RunRecordHooks(ParametersHooks())
    run.root, run.name = tmp_path, "lake"
    RunPaths(tmp_path, "lake").record.parent.mkdir(parents=True)
    clock = ClockHooks(run)
    manager = _create_hook_manager()
    _register_hooks(manager, (clock,))
    manager.hook.before_pipeline_run(run_params={}, pipeline=None, catalog=None)
    save(manager, "evaluation__lake__t0_5__0000.summary", {})
    save(manager, "iter_0000.metrics", {"iteration": 0})
    assert clock.iteration["seconds_iteration"] == 3.0
    assert json.loads(RunPaths(tmp_path, "lake").timings.read_text())["seconds_mirror"] == 1.0
