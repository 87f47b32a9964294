"""An update that runs out of memory is done again with half of the tokens in a micro-batch, from where it began."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import odd_objectives
import pytest
from builders import algorithm, learner_config, raised_message, store
from test_trained_module import same

from starpo.errors import UserError
from starpo.learning.batching import Sequences
from starpo.learning.host import LearnerHost
from starpo.learning.learner import Learner, UpdateResult
from starpo.store.policies import Policy

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def fresh_calls() -> Iterator[None]:
    odd_objectives.calls.clear()
    yield


def updated(
    policy: Policy, batch: Sequences, loss: str, *, tokens: int, **parameters: Any
) -> tuple[Learner, UpdateResult]:
    algo = algorithm(policy_loss=f"odd_objectives:{loss}", policy_loss_parameters=parameters)
    config = learner_config(rows_per_step=8, epochs=2, micro_batch_tokens=tokens)
    return LearnerHost().update(policy, batch, config, algo, temperature=1.0, seed=0)


def half_the_rows(batch: Sequences) -> int:
    """Tokens that eight trajectories have at most."""
    return int(sum(sorted(batch.lengths)[-8:]))


def trained_once(policy: Policy, batch: Sequences, folder: Path, **parts: Any) -> Policy:
    actor = Learner(policy, learner_config(), algorithm(), temperature=1.0)
    actor.update(batch, seed=0, iteration=0)
    store(folder, model_files=policy.directory, weights=policy.tensors("weights"))
    return store(
        folder,
        model_files=policy.directory,
        weights=actor.weights(),
        iteration=1,
        status="trained",
        counters=actor.counters() | {"skipped": 0},
        **{"parts": actor.parts()} | parts,
    )


def test_the_second_attempt_begins_where_the_first_did_after_steps_too(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path
) -> None:
    policy, tokens = trained_once(tiny_policy, batch, tmp_path), half_the_rows(batch)
    # The first attempt has memory for two steps, of one micro-batch each, then for less than that.
    actor, result = updated(policy, batch, "hungry", tokens=tokens, rows=7, first=2)
    assert odd_objectives.calls[:3] == [8, 8, 8] and max(odd_objectives.calls[3:]) < 8
    assert result.metrics["update_retries"] == 1.0
    assert actor.counters() == {"actor_steps": 6, "critic_steps": 6}
    alone, expected = updated(policy, batch, "hungry", tokens=tokens // 2, rows=8)
    assert same(actor.weights(), alone.weights())
    for part, tensors in actor.parts().items():
        assert same(tensors, alone.parts()[part])
    clocks = {"seconds_update", "update_retries"}
    assert {k: v for k, v in result.metrics.items() if k not in clocks} == {
        k: v for k, v in expected.metrics.items() if k not in clocks
    }


@pytest.mark.parametrize(
    ("loss", "parameters", "said"),
    [("hungry", {"rows": 0}, "CUDA out of memory. Tried to allocate 2.00 GiB."), ("greedy", {}, "allocate")],
    ids=["GPU", "CPU"],
)
def test_the_second_time_is_one_sentence_with_the_keys_that_help(
    tiny_policy: Policy, batch: Sequences, loss: str, parameters: dict[str, Any], said: str
) -> None:
    message = raised_message(UserError, lambda: updated(tiny_policy, batch, loss, tokens=1000, **parameters))
    for part in ("iteration 0", "learner.micro_batch_tokens = 1000 and again with 500", said):
        assert part in message
    for key in ("learner.gradient_checkpointing", "learner.lora", "agent.max_tokens_per_trajectory"):
        assert key in message
    assert len(odd_objectives.calls) == 2 and "\n" not in message


def test_without_a_complete_state_on_disk_there_is_no_second_attempt(
    tiny_policy: Policy, batch: Sequences, tmp_path: Path
) -> None:
    policy = trained_once(tiny_policy, batch, tmp_path, parts={})
    message = raised_message(UserError, lambda: updated(policy, batch, "hungry", tokens=1000, rows=0))
    assert "run.checkpoint_every" in message
    assert len(odd_objectives.calls) == 1


def test_another_error_of_the_learner_s_stays_what_it_is(tiny_policy: Policy, batch: Sequences) -> None:
    with pytest.raises(RuntimeError, match="broken"):
        updated(tiny_policy, batch, "broken", tokens=1000)


def test_a_process_that_may_not_have_more_memory_learns_with_half(tmp_path: Path) -> None:
    """The allocator of the CPU itself refuses: the limit of the process lies between what either attempt needs."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("limited_learner.py")), str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.split("RESULT ")[1])
    assert found["needs_half"] < found["allowed"] < found["needs_all"], found
    assert found["retries"] == 1.0
    assert found["equal"], "the same as half the tokens from the start"
