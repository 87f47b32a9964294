"""Environments in worker processes: the same bytes, and failures that stay where they happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from builders import ScriptedEngine, agent, plan
from test_episodes import ADD, WAIT, parquet_digest

from starpo.agent.records import StopReason, Trajectory
from starpo.agent.template import ChatTemplate
from starpo.base_policy.tokenizer import build_tokenizer
from starpo.config.environment import EnvironmentConfig
from starpo.config.reward import FilterConfig
from starpo.environments.contract import ContractError
from starpo.environments.registry import recipe
from starpo.errors import UserError
from starpo.monitor.iteration_metrics import rollout_metrics
from starpo.rewards.bind import bind_terms
from starpo.rollout.environments import Act, Environments, Failure, LocalEnvironments, Open, Task
from starpo.rollout.episodes import play, reading_of
from starpo.rollout.workers import WorkerPool
from starpo.scoring.scoring import mark_kept, score_turns
from starpo.store.policies import load_tokenizer
from starpo.store.trajectory_table import trajectories_to_table, without_turns

HERE = Path(__file__).parent
LIMITS = {"max_tokens_per_turn": 200, "max_tokens_per_trajectory": 4000, "max_turns": 3}
REPLIES = (ADD, WAIT, "nonsense", ADD, WAIT)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(["Count. count 1 coin 2"], ["<answer>"], vocabulary=300, directory=folder)
    return ChatTemplate.of(load_tokenizer(folder))


def pool_of(workers: int, **changes: Any) -> WorkerPool:
    config = EnvironmentConfig(name="any", workers=workers, **changes)
    return WorkerPool(config, reading_of(agent(**LIMITS)))


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, Environments]]:
    """Places by number of workers; starting processes takes a second or two, so tests share them."""
    places: dict[int, Environments] = {n: pool_of(n, step_limit_seconds=1.0) for n in (1, 3)}
    places[0] = LocalEnvironments(reading_of(agent(**LIMITS)))
    yield places
    for place in places.values():
        place.close()


def rolled(
    template: ChatTemplate, place: Environments, environment: str, groups: int = 3, **arguments: Any
) -> list[Trajectory]:
    engine = ScriptedEngine(
        lambda request: ([*template.content(REPLIES[request % len(REPLIES)]), template.turn_end], True)
    )
    drawn = plan(
        environment=environment
        if ":" in environment or not environment[0].isupper()
        else f"odd_environments:{environment}",
        arguments=arguments,
        groups=groups,
        group_size=4,
    )
    return play(engine, drawn, agent(**LIMITS), template, place)


def digest(trajectories: list[Trajectory]) -> str:
    return parquet_digest(trajectories_to_table(trajectories, policy_step=0, temperature=1.0, top_p=1.0))


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        ("Counter", {}),
        ("frozen_lake", {}),
        ("Crashing", {}),
        ("Broken", {"where": "reset", "how": "raise"}),
        ("Broken", {"where": "match", "how": "raise"}),
        ("Broken", {"where": "match", "how": "quit"}),
        ("Broken", {"where": "step", "how": "raise"}),
        ("Broken", {"where": "step", "how": "quit"}),
        ("Broken", {"where": "reset", "how": "quit"}),
        ("Bad", {}),
    ],
)
def test_any_number_of_workers_gives_the_same_bytes(
    template: ChatTemplate, pools: dict[int, Environments], environment: str, arguments: dict[str, Any]
) -> None:
    digests = {n: digest(rolled(template, place, environment, **arguments)) for n, place in pools.items()}
    assert len(set(digests.values())) == 1, digests


@pytest.mark.parametrize("where", ["reset", "match", "step"])
@pytest.mark.parametrize(
    ("how", "error"), [("raise", "KeyError: 'a bug in the environment'"), ("quit", "SystemExit: enough")]
)
def test_what_an_environment_raises_ends_its_own_episode_only(
    template: ChatTemplate, pools: dict[int, Environments], where: str, how: str, error: str
) -> None:
    trajectories = rolled(template, pools[0], "Broken", where=where, how=how)
    assert {each.error for each in trajectories} == {"", error}
    for each in trajectories:
        assert (each.stop_reason is StopReason.ENVIRONMENT_ERROR) == bool(each.error)


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize("how", ["exit", "hang"])
def test_a_dying_or_hanging_environment_ends_its_own_episode_only(
    template: ChatTemplate, pools: dict[int, Environments], how: str, where: str
) -> None:
    """Every other episode is as if nothing had happened, though its process was lost with the others."""
    healthy = rolled(template, pools[0], "Broken", groups=2, where=where, how="raise", one_in=4)
    # A hang costs its limit each time; one number of workers is enough to see what it does.
    for workers in (1, 3) if how == "exit" else (3,):
        broken = rolled(template, pools[workers], "Broken", groups=2, where=where, how=how, one_in=4)
        assert any(each.error for each in broken) and not all(each.error for each in broken)
        for expected, got in zip(healthy, broken, strict=True):
            assert bool(got.error) == bool(expected.error)
            if got.error:
                assert got.stop_reason is StopReason.ENVIRONMENT_ERROR
                assert ("exit code 3" if how == "exit" else "longer than 1 s") in got.error
                assert where in got.error
                assert [turn.response_ids for turn in got.turns] == [t.response_ids for t in expected.turns]
            else:
                assert got == expected


@pytest.mark.parametrize("how", ["exit", "hang"])
def test_what_was_done_before_a_loss_in_the_middle_of_a_turn_stands(how: str) -> None:
    pool = pool_of(1, step_limit_seconds=0.5)
    task = Task("odd", recipe("odd_environments:Broken", where="step", how=how, one_in=1))
    (opening,) = pool.answer([Open(0, task, 1, 2)])
    began = time.monotonic()
    (outcome,) = pool.answer([Act(0, "<think></think><answer>Add || Wait</answer>", 2)])
    assert time.monotonic() - began < 30, "the limit of a step, not that of a start"
    assert (outcome.actions, outcome.executed, outcome.reward) == (("Add", "Wait"), ("Add",), 1.0)
    assert outcome.observation != opening.observation
    assert ("died in step (exit code 3)" if how == "exit" else "step took longer than 0.5 s") in outcome.error
    (later,) = pool.answer([Act(0, "<think></think><answer>Add</answer>", 1)])
    assert (later.executed, later.error) == ((), outcome.error)
    pool.close()


def test_a_turn_is_one_message_whatever_its_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(1)
    pool.answer([Open(0, Task("odd", recipe("odd_environments:Counter")), 1, 2)])
    received = []
    recv = Connection.recv
    monkeypatch.setattr(Connection, "recv", lambda self: received.append(recv(self)) or received[-1])
    (outcome,) = pool.answer([Act(0, "<think></think><answer>Add || Wait || Add</answer>", 3)])
    assert outcome.executed == ("Add", "Wait", "Add")
    assert received == [outcome]
    pool.close()


def test_an_exception_that_is_no_failure_of_the_environment_ends_its_episode_only() -> None:
    pool = pool_of(1)
    task = Task("odd", recipe("isolated_environments:Throwing", what="Cancelled"))
    openings = pool.answer([Open(number, task, number, 0) for number in range(12)])
    errors = [each.error for each in openings if isinstance(each, Failure)]
    assert 0 < len(errors) < 12
    assert set(errors) == {"CancelledError: broken"}
    pool.close()


def test_an_episode_that_ends_by_an_error_is_quarantined_and_counted(
    template: ChatTemplate, pools: dict[int, Environments]
) -> None:
    trajectories = rolled(template, pools[3], "Broken", where="step", how="exit")
    turns = trajectories_to_table(trajectories, policy_step=0, temperature=1.0, top_p=1.0)
    marked = mark_kept(
        score_turns(turns, bind_terms({"environment": {}})),
        FilterConfig(keep_ratio=1.0, keep_zero_spread=True),
    )
    failed = [bool(each.error) for each in trajectories]
    assert any(failed) and not all(failed)
    assert marked["quarantined"].to_pylist() == failed
    assert [reason == "environment_error" for reason in marked["reason"].to_pylist()] == failed
    assert rollout_metrics(turns, marked)["environment_errors"] == sum(failed)
    assert set(turns["error"].to_pylist()) == {"", "the worker process died in step (exit code 3)"}


def test_a_failed_reset_leaves_no_row_but_is_named_counted_and_logged(
    template: ChatTemplate, caplog: pytest.LogCaptureFixture
) -> None:
    trajectories = rolled(
        template, LocalEnvironments(reading_of(agent(**LIMITS))), "Broken", where="reset", how="raise"
    )
    turns = trajectories_to_table(trajectories, policy_step=0, temperature=1.0, top_p=1.0)
    failed = [each for each in trajectories if each.error]
    assert 0 < len(failed) < 12
    assert all(not each.turns and each.stop_reason is StopReason.ENVIRONMENT_ERROR for each in failed)
    named = without_turns(turns)
    assert [(row["group"], row["member"], row["dynamics_seed"]) for row in named] == [
        (each.address.group, each.address.member, each.dynamics_seed) for each in failed
    ]
    assert {row["error"] for row in named} == {"KeyError: 'a bug in the environment'"}
    scored = score_turns(turns, bind_terms({"environment": {}}))
    assert scored.num_rows == 12 - len(failed), "groups shrink"
    metrics = rollout_metrics(turns, scored)
    assert metrics["environment_errors"] == metrics["trajectories_without_turns"] == len(failed)
    assert f"{len(failed)} of 12 episodes" in caplog.text
    assert str(failed[0].dynamics_seed) in caplog.text


def test_a_reset_that_always_fails_gives_an_empty_table_and_no_crash(
    template: ChatTemplate, pools: dict[int, Environments]
) -> None:
    trajectories = rolled(template, pools[1], "Bad")
    turns = trajectories_to_table(trajectories, policy_step=0, temperature=1.0, top_p=1.0)
    scored = score_turns(turns, bind_terms({"environment": {}}))
    assert (turns.num_rows, scored.num_rows) == (0, 0)
    assert rollout_metrics(turns, scored)["environment_errors"] == 12
    assert all("OSError: no such map; reset(seed=" in row["error"] for row in without_turns(turns))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("Lying", "odd_environments:Lying.*step reward is 'much'"),
        ("Inventive", "odd_environments:Inventive.*match_action's result is 'Fly'.*action_names"),
    ],
)
def test_a_breach_of_contract_stops_the_run_wherever_it_happens(
    template: ChatTemplate, workers: int, environment: str, message: str
) -> None:
    place = pool_of(workers) if workers else LocalEnvironments(reading_of(agent(**LIMITS)))
    with pytest.raises(ContractError, match=message):
        rolled(template, place, environment)
    place.close()


def test_an_environment_that_cannot_be_rebuilt_ends_as_an_error_too(
    template: ChatTemplate, pools: dict[int, Environments]
) -> None:
    trajectories = rolled(template, pools[1], "MoodyExit")
    errors = {each.error for each in trajectories if each.error}
    assert "its worker process was lost, and the same seeds and actions lead to another state" in errors
    assert all(each.stop_reason is not None for each in trajectories)


def test_an_environment_that_cannot_be_built_is_a_mistake_of_the_user(template: ChatTemplate) -> None:
    for place in (pool_of(1), LocalEnvironments(reading_of(agent(**LIMITS)))):
        with pytest.raises(UserError, match=r"'frozen_lake' cannot be built: .*size"):
            rolled(template, place, "frozen_lake", size=1)
        place.close()


def test_a_class_that_nobody_can_import_is_refused_by_name(template: ChatTemplate) -> None:
    from odd_environments import Counter

    class Local(Counter):
        """Nobody can import a class of a function."""

    from starpo.environments.registry import register

    register("local_counter", Local)
    pool = pool_of(1)
    with pytest.raises(UserError, match=r"local_counter.*cannot be sent to a worker process"):
        rolled(template, pool, "local_counter")
    pool.close()


def test_a_worker_that_does_not_start_is_reported(template: ChatTemplate) -> None:
    pool = pool_of(1, start_limit_seconds=0.001)
    with pytest.raises(UserError, match=r"start_limit_seconds = 0\.001: a worker process did not start"):
        rolled(template, pool, "Counter")
    assert not pool._workers


def test_workers_import_neither_torch_nor_an_engine() -> None:
    code = (
        "import sys, starpo.rollout.worker, starpo.rollout.environments, starpo.environments.frozen_lake; "
        "print([m for m in ('torch', 'transformers', 'vllm', 'kedro', 'mlflow', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def alive(pids: list[int]) -> list[int]:
    """Those that still run (a zombie does not)."""
    running = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            running.append(pid)
    return running


def gone(pids: list[int], seconds: float = 15.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(pids)


def test_closing_leaves_no_process(template: ChatTemplate) -> None:
    pool = pool_of(2)
    rolled(template, pool, "Counter", groups=1)
    pids = [worker.popen.pid for worker in pool._workers]
    assert len(alive(pids)) == 2
    pool.close()
    assert not alive(pids)


PARENT = """
import sys, time
sys.path[:0] = {paths!r}
from starpo.config.environment import EnvironmentConfig
from starpo.environments.registry import recipe
from starpo.rollout.environments import Act, Open, Reading, Task
from starpo.rollout.workers import WorkerPool
if __name__ == "__main__":
    pool = WorkerPool(EnvironmentConfig(name="any", workers=2), Reading(True, "||"))
    task = Task("odd", recipe("odd_environments:Broken", where="step", how="hang", one_in=1))
    pool.answer([Open(0, task, 1, 2), Open(1, task, 1, 2)])
    print(*(worker.popen.pid for worker in pool._workers), flush=True)
    pool.answer([Act(0, "<think></think><answer>Wait</answer>", 1)])
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_parent_even_in_an_endless_step(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(paths=[str(HERE), str(HERE.parent)]))
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(alive(pids)) == 2
    time.sleep(0.3)  # until the step hangs
    # Ctrl-C reaches the whole group.
    os.killpg(parent.pid, how) if how == signal.SIGINT else parent.send_signal(how)
    parent.wait(20)
    assert gone(pids)
