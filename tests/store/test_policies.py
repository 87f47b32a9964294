"""Policies on disk: round trip, pruning, damage, and going back to the last complete state."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import raised_message, store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from starpo.app.preflight import rewind
from starpo.errors import UserError
from starpo.store.layout import policy_name
from starpo.store.policies import Policy, faulty_files, first_policy
from starpo.store.policy_state import HARNESS, MANIFEST, MODEL, PARTS, STATE_FILES, Adapter, PolicyState
from starpo.store.retention import last_complete, prune

COUNTERS = {"actor_steps": 7, "critic_steps": 8, "skipped": 0}


def tensors(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"a.weight": torch.full((2, 3), value), "b.bias": torch.arange(4.0) + value}


def parts() -> dict[str, dict[str, torch.Tensor]]:
    return {part: tensors(number) for number, part in enumerate(STATE_FILES)}


def model_files(directory: Path) -> Path:
    files = directory / "files"
    files.mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer.json", "chat_template.jinja"):
        (files / name).write_text("{}")
    (files / "pytorch_model.bin.index.json").write_text("{}")
    (files / "pytorch_model.bin").write_bytes(b"x")
    return files


def imported(root: Path) -> Policy:
    return store(root, model_files=model_files(root), weights=tensors(), run="run")


def trained(root: Path, iteration: int, *, complete: bool = True) -> Policy:
    return store(
        root,
        model_files=model_files(root),
        weights=tensors(iteration),
        run="run",
        iteration=iteration,
        status="trained",
        counters=COUNTERS,
        parts=parts() if complete else {},
    )


def skipped(root: Path, before: Policy) -> Policy:
    state = before.repeated("skipped", {})
    directory = root / "run" / policy_name(state.iteration)
    state.write(directory)
    return Policy.open(directory)


def same(one: dict[str, torch.Tensor] | None, other: dict[str, torch.Tensor]) -> bool:
    return one is not None and one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    trained(tmp_path, 3)
    policy = Policy.open(tmp_path / "run" / "policy_0003")
    assert (policy.iteration, policy.step, policy.identity) == (3, 3, "run/3")
    assert policy.counters == COUNTERS
    assert same(policy.tensors("weights"), tensors(3))
    for part, expected in parts().items():
        assert same(policy.tensors(part), expected)
    assert policy.is_complete


def test_config_tokenizer_and_template_are_carried_and_foreign_weights_are_not(tmp_path: Path) -> None:
    names = {path.name for path in trained(tmp_path, 1).directory.iterdir()}
    assert {"config.json", "tokenizer.json", "chat_template.jinja", "harness.json"} <= names
    assert not {"pytorch_model.bin", "pytorch_model.bin.index.json"} & names


def test_a_skipped_policy_repeats_the_weights_and_identity_of_the_one_before(tmp_path: Path) -> None:
    before = trained(tmp_path, 1)
    after = skipped(tmp_path, skipped(tmp_path, before))
    assert after.identity == before.identity
    assert after.iteration == 3
    assert after.counters == COUNTERS | {"skipped": 2}
    assert same(after.tensors("weights"), tensors(1))
    assert after.is_complete


def test_a_roll_back_has_the_weights_and_counters_of_the_good_policy_and_a_step_of_its_own(
    tmp_path: Path,
) -> None:
    good = trained(tmp_path, 1)
    fallen = store(
        tmp_path,
        model_files=model_files(tmp_path),
        weights=tensors(9),
        run="run",
        iteration=4,
        policy_step=3,
        status="trained",
        counters={"actor_steps": 30, "critic_steps": 31, "skipped": 0},
        parts=parts(),
    )
    state = fallen.rolled_back(good, {"roll_backs": 1})
    state.write(tmp_path / "run" / policy_name(state.iteration))
    after = Policy.open(tmp_path / "run" / "policy_0005")
    assert (after.iteration, after.step, after.manifest["status"]) == (5, 4, "rolled_back")
    assert after.counters == COUNTERS
    assert same(after.tensors("weights"), tensors(1))
    assert after.is_complete
    assert after.monitor == {"roll_backs": 1}


def test_what_was_learned_after_a_policy_counts_as_one_step_more(tmp_path: Path) -> None:
    before = skipped(tmp_path, trained(tmp_path, 1))
    state = before.trained(weights=tensors(2), parts={}, adapter=None, counters=COUNTERS, monitor={})
    assert (state.iteration, state.policy_step, state.weights_in) == (3, 2, "policy_0003")


def test_an_imported_policy_is_complete_without_moments_and_a_trained_one_is_not(tmp_path: Path) -> None:
    first = imported(tmp_path)
    assert first.is_complete
    assert skipped(tmp_path, first).is_complete
    assert not trained(tmp_path, 2, complete=False).is_complete


def test_the_first_policy_of_a_run_is_found_or_the_policy_itself(tmp_path: Path) -> None:
    late = trained(tmp_path, 5)
    assert first_policy(late) is late
    first = imported(tmp_path)
    assert first_policy(late).directory == first.directory


def test_parts_that_were_not_stored_are_none(tmp_path: Path) -> None:
    policy = imported(tmp_path)
    assert policy.tensors("critic") is None


@pytest.mark.parametrize("part", ["weights", *STATE_FILES])
def test_a_damaged_tensor_file_is_named(tmp_path: Path, part: str) -> None:
    policy = trained(tmp_path, 1)
    file = policy.directory / (MODEL if part == "weights" else STATE_FILES[part])
    file.write_bytes(file.read_bytes()[:-7])
    message = raised_message(UserError, lambda: policy.tensors(part))
    assert str(file) in message
    assert "starpo runs verify" in message


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_in_any_file_of_a_policy_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        policy = trained(Path(folder), 1)
        names = sorted(policy.manifest["files"])
        name = data.draw(st.sampled_from(names))
        file = policy.directory / name
        content = bytearray(file.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        assert faulty_files(policy.directory) == {}
        file.write_bytes(content)
        assert faulty_files(policy.directory) == {name: "damaged"}
        part = next((part for part, place in PARTS.items() if place == name), None)
        with pytest.raises(UserError, match=re.escape(str(file))):
            policy.harness() if name == HARNESS else policy.tensors(part) if part else policy.check_model()


def test_a_policy_lists_all_its_files_but_the_manifest(tmp_path: Path) -> None:
    policy = trained(tmp_path, 1)
    files = {
        file.relative_to(policy.directory).as_posix()
        for file in policy.directory.rglob("*")
        if file.is_file()
    }
    assert set(policy.manifest["files"]) == files - {MANIFEST}
    policy.check_model()
    (policy.directory / MODEL).unlink()  # pruned
    assert faulty_files(policy.directory) == {}
    (policy.directory / HARNESS).unlink()
    assert faulty_files(policy.directory) == {HARNESS: "missing"}


@pytest.mark.parametrize(
    ("text", "complaint"), [(None, "no policy here"), ("{", "unreadable"), ('{"schema_version": 99}', "99")]
)
def test_a_bad_manifest_is_named(tmp_path: Path, text: str | None, complaint: str) -> None:
    if text is not None:
        (tmp_path / MANIFEST).write_text(text)
    message = raised_message(UserError, lambda: Policy.open(tmp_path))
    assert complaint in message
    assert str(tmp_path) in message


def test_pruned_weights_are_said_so_when_asked_for(tmp_path: Path) -> None:
    policy = trained(tmp_path, 1)
    (policy.directory / MODEL).unlink()
    message = raised_message(UserError, lambda: policy.model_directory)
    assert "pruned" in message
    assert "keep_last" in message


def test_a_policy_without_weights_still_tells_how_it_was_asked(tmp_path: Path) -> None:
    policy = store(
        tmp_path,
        model_files=model_files(tmp_path),
        weights=tensors(),
        run="run",
        harness={"agent": {"turns": 1}},
    )
    (policy.directory / MODEL).unlink()
    assert Policy.open(policy.directory).harness() == {"agent": {"turns": 1}}


KINDS = st.lists(st.sampled_from(["complete", "weights", "skipped"]), max_size=8)


@given(kinds=KINDS, keep_last=st.integers(1, 3), keep_models=st.sets(st.integers(0, 8)))
def test_pruning_after_every_policy_keeps_what_is_needed_and_nothing_else(
    kinds: list[str], keep_last: int, keep_models: set[int]
) -> None:
    keep_models = keep_models | {0}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        policies = [imported(root)]
        for number, kind in enumerate(kinds, start=1):
            if kind == "skipped":
                policies.append(skipped(root, policies[-1]))
            else:
                policies.append(trained(root, number, complete=kind == "complete"))
            newest = policies[-1]
            could_go_on = newest.is_complete
            complete = [policy for policy in policies if policy.is_complete]
            models = [p for p in policies if p.iteration in keep_models]
            prune(root / "run", keep_last=keep_last, keep_models=keep_models)
            assert newest.is_complete is could_go_on
            assert all(policy.is_complete for policy in complete[-keep_last:])
            assert all(holder(policy, MODEL).exists() for policy in models)
            assert all((policy.directory / MANIFEST).exists() for policy in policies)
        moments = list((root / "run").glob(f"*/{STATE_FILES['actor_moments']}"))
        assert len(moments) <= keep_last
        needed = {holder(p, MODEL) for p in policies if p.iteration in keep_models}
        needed |= {holder(p, MODEL) for p in policies[-1:]}
        needed |= {holder(p, MODEL) for p in [p for p in policies if p.is_complete][-keep_last:]}
        assert set((root / "run").glob(f"*/{MODEL}")) <= needed


def test_between_learner_states_the_weights_of_a_policy_stay_for_one_that_repeats_them(
    tmp_path: Path,
) -> None:
    imported(tmp_path)
    trained(tmp_path, 1)
    kept = {"keep_last": 1, "keep_models": {0, 3}}
    before = trained(tmp_path, 2, complete=False)
    prune(tmp_path / "run", **kept)
    last = skipped(tmp_path, before)
    prune(tmp_path / "run", **kept)
    assert same(last.tensors("weights"), tensors(2)), "the last policy, which is evaluated, can be loaded"
    trained(tmp_path, 4, complete=False)
    prune(tmp_path / "run", **kept)
    trained(tmp_path, 5, complete=False)
    prune(tmp_path / "run", **kept)
    held = {path.parent.name for path in (tmp_path / "run").glob(f"*/{MODEL}")}
    assert held == {"policy_0000", "policy_0001", "policy_0002", "policy_0005"}


def test_the_state_that_a_roll_back_would_return_to_is_kept_beside_the_last(tmp_path: Path) -> None:
    imported(tmp_path)
    for iteration in (1, 2, 3, 4):
        trained(tmp_path, iteration)
    prune(tmp_path / "run", keep_last=1, keep_models={0}, keep_state=2)
    held = {path.parent.parent.name for path in (tmp_path / "run").glob(f"*/{STATE_FILES['actor_moments']}")}
    assert held == {"policy_0002", "policy_0004"}


def holder(policy: Policy, name: str) -> Path:
    return policy.directory.parent / policy.manifest["weights_in"] / name


def test_a_complete_newest_state_is_left_alone(tmp_path: Path) -> None:
    imported(tmp_path)
    trained(tmp_path, 1, complete=False)
    newest = trained(tmp_path, 2)
    rewind(tmp_path / "run")
    assert newest.is_complete
    assert len(list((tmp_path / "run").glob(f"*/{MANIFEST}"))) == 3


def test_policies_after_the_last_complete_state_are_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    imported(tmp_path)
    for iteration, complete in ((1, False), (2, True), (3, False), (4, False)):
        trained(tmp_path, iteration, complete=complete)
    with caplog.at_level(logging.WARNING):
        rewind(tmp_path / "run")
    left = sorted(path.parent.name for path in (tmp_path / "run").glob(f"*/{MANIFEST}"))
    assert left == ["policy_0000", "policy_0001", "policy_0002"]
    assert "going back to run/2" in caplog.text
    back = last_complete(tmp_path / "run", 4)
    assert back is not None and back.iteration == 2


def test_without_a_learner_state_a_run_goes_back_to_its_first_policy(tmp_path: Path) -> None:
    imported(tmp_path)
    trained(tmp_path, 1, complete=False)
    rewind(tmp_path / "run")
    assert [path.parent.name for path in (tmp_path / "run").glob(f"*/{MANIFEST}")] == ["policy_0000"]


def test_skipped_iterations_at_the_start_are_not_done_again(tmp_path: Path) -> None:
    skipped(tmp_path, skipped(tmp_path, imported(tmp_path)))
    rewind(tmp_path / "run")
    assert len(list((tmp_path / "run").glob(f"*/{MANIFEST}"))) == 3


def test_no_complete_state_at_all_is_refused_with_a_remedy(tmp_path: Path) -> None:
    trained(tmp_path, 1, complete=False)
    with pytest.raises(UserError, match="starpo runs rm run"):
        rewind(tmp_path / "run")


def test_an_adapter_is_kept_and_pruned_with_the_model_it_belongs_to(tmp_path: Path) -> None:
    imported(tmp_path)
    for iteration in (1, 2, 3):
        directory = tmp_path / "run" / f"policy_{iteration:04d}"
        PolicyState(
            run="run",
            iteration=iteration,
            policy_step=iteration,
            status="trained",
            counters=COUNTERS,
            model_files=model_files(tmp_path),
            harness={},
            weights=tensors(iteration),
            weights_in=directory.name,
            parts=parts(),
            adapter=Adapter({"r": 2}, tensors(10 + iteration)),
        ).write(directory)
    stored = Policy.open(tmp_path / "run" / "policy_0003").adapter()
    assert stored is not None and stored.settings == {"r": 2}
    assert same(stored.tensors, tensors(13))
    prune(tmp_path / "run", keep_last=1, keep_models={0, 1})
    held = {path.parent.parent.name for path in (tmp_path / "run").glob(f"*/{PARTS['adapter']}")}
    assert held == {"policy_0001", "policy_0003"}


def test_a_damaged_newest_state_is_refused_naming_the_file(tmp_path: Path) -> None:
    file = trained(tmp_path, 1).directory / STATE_FILES["critic"]
    file.write_bytes(b"broken")
    message = raised_message(UserError, lambda: rewind(tmp_path / "run"))
    assert str(file) in message


def test_a_run_without_policies_needs_no_rewinding(tmp_path: Path) -> None:
    rewind(tmp_path / "nothing")


def test_the_manifest_holds_no_clock_time(tmp_path: Path) -> None:
    manifest: dict[str, Any] = json.loads((trained(tmp_path, 1).directory / MANIFEST).read_text())
    assert set(manifest) == {
        "schema_version",
        "run",
        "iteration",
        "policy_step",
        "status",
        "counters",
        "weights_in",
        "monitor",
        "files",
    }
