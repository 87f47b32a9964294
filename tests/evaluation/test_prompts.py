"""The fixed prompts of evaluation: shipped for every configured suite, held out, and guarded against change."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import raised_message
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from starpo.app.config_loader import ConfigLoader
from starpo.config.evaluation import Suite
from starpo.environments.bandit import FAMILIES, PAIRS
from starpo.environments.base import TextEnvironment
from starpo.environments.registry import make
from starpo.environments.splits import Split, draw_instance, split_of, split_of_environment
from starpo.errors import UserError
from starpo.evaluation import prompts
from starpo.evaluation.prompts import SHIPPED, PromptSet, fixed_prompts, write_prompt_sets
from starpo.seeds import Purpose, SeedKey
from starpo.settings import CONFIG_LOADER_ARGS

CONF = Path(__file__).resolve().parents[2] / "conf"
SETS = {f"{each.environment} {each.split.value} {sorted(each.arguments)}": each for each in SHIPPED}


def conf(folder: str) -> dict:
    """The parameters under one configuration folder."""
    loader = ConfigLoader(str(CONF), env=None if folder == "base" else folder, **CONFIG_LOADER_ARGS)
    return dict(loader["parameters"])


def configured_suites() -> list[tuple[str, PromptSet, int]]:
    """Every suite of the configurations that come with the project: its place, its set, its size."""
    found = []
    for folder in sorted(path.name for path in CONF.iterdir() if list(path.glob("parameters*.yml"))):
        own = conf(folder)
        task, evaluation = own["environment"], own["evaluation"]
        for name, raw in evaluation["suites"].items():
            suite = Suite.model_validate(raw)
            environment = suite.environment or task["name"]
            arguments = suite.arguments if suite.environment else task["arguments"] or {}
            wanted = PromptSet(environment, arguments, Split(suite.split), evaluation["seed"])
            found.append((f"{folder}: {name}", wanted, suite.prompts))
    return found


def entry_of(wanted: PromptSet) -> dict | None:
    """What the manifest says about a set."""
    return prompts._manifest().get(prompts._key(wanted.identity()))


def test_every_configured_suite_has_a_shipped_set_with_enough_prompts():
    for place, wanted, size in configured_suites():
        entry = entry_of(wanted)
        assert entry, f"{place}: `make prompts`"
        assert entry["prompts"] >= size or entry["complete"], f"{place}: `make prompts`"


def test_the_lists_of_suites_name_known_ones():
    for folder in ("base", "smoke", "paper"):
        evaluation = conf(folder)["evaluation"]
        for key in ("periodic", "final", "generalisation"):
            assert set(evaluation[key]) <= set(evaluation["suites"]), (folder, key)
        assert evaluation["generalisation"]


def play(wanted: PromptSet, size: int) -> tuple:
    return fixed_prompts(
        wanted.environment, wanted.arguments, split=wanted.split, seed=wanted.seed, prompts=size
    )


@pytest.mark.parametrize("name", SETS)
def test_shipped_prompts_are_distinct_and_of_their_split(name):
    wanted = SETS[name]
    size = min(240, entry_of(wanted)["prompts"])
    found = play(wanted, size)
    env = make(wanted.environment, **wanted.arguments)
    assert len({each.observation for each in found}) == size
    for each in found[::7]:
        observation, _ = env.reset(seed=each.seed)
        assert observation == each.observation
        assert split_of_environment(env, observation) is wanted.split


@pytest.mark.parametrize("name", SETS)
@examples(0.25)
@given(run_seed=st.integers(0, 2**32), iteration=st.integers(0, 500), group=st.integers(0, 500))
def test_nothing_that_training_can_draw_is_among_the_prompts(name, run_seed, iteration, group):
    wanted = SETS[name]
    held_out = {each.observation for each in play(wanted, 80)}
    env = make(wanted.environment, **wanted.arguments)
    key = SeedKey(run_seed, Purpose.INSTANCE, "train", iteration, group)
    assert draw_instance(env, split=Split.TRAIN, key=key).observation not in held_out


def test_suites_of_other_tasks_hold_no_room_or_pair_of_training_either():
    shown = make("sokoban_paper")
    for each in play(PromptSet("sokoban_different_vocab_paper"), 256):
        observation, _ = shown.reset(seed=each.seed)
        assert split_of_environment(shown, observation) is Split.TEST
    for each in play(PromptSet("bandit_reversed"), 240):
        pair = tuple(sorted(each.observation.removeprefix("Arms: ").split(", "), key=_is_wild))
        assert PAIRS["things"][pair] is Split.TEST


def _is_wild(name: str) -> bool:
    return name in FAMILIES["things"][1]


def test_a_larger_suite_begins_with_the_smaller_one():
    wanted = PromptSet("frozen_lake", {"coordinates": True, "surroundings": True})
    assert play(wanted, 300)[:256] == play(wanted, 256)
    unshipped = PromptSet("frozen_lake", {"size": 5})
    assert play(unshipped, 40)[:25] == play(unshipped, 25)


def test_a_task_under_another_name_gets_the_same_prompts():
    assert play(PromptSet("frozen_lake_paper"), 20) == play(PromptSet("frozen_lake"), 20)
    spelt = PromptSet("starpo.environments.sokoban:Sokoban", {"lengths": "ragen", "max_optimal": 11})
    assert play(spelt, 20) == play(PromptSet("sokoban_paper"), 20)
    assert play(PromptSet("frozen_lake", seed=124), 20) != play(PromptSet("frozen_lake"), 20)


REDRAW = """
from itertools import islice
from starpo.evaluation import prompts
for wanted in reversed(prompts.SHIPPED):
    for each in islice(prompts._distinct(wanted), 12):
        print(each.seed, prompts._digest(each.observation))
"""


def test_another_process_with_another_hash_seed_draws_the_shipped_prompts_in_any_order():
    done = subprocess.run(
        [sys.executable, "-c", REDRAW],
        env=os.environ | {"PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    for number, wanted in enumerate(reversed(SHIPPED)):
        entry = prompts._manifest()[prompts._key(wanted.identity())]
        rows = (prompts.FOLDER / entry["file"]).read_text().splitlines()[2:14]
        assert [row.replace(",", " ") for row in rows] == lines[12 * number : 12 * number + 12], wanted


def test_writing_the_sets_anew_gives_the_shipped_bytes(tmp_path, monkeypatch):
    chosen = (PromptSet("bandit", split=Split.VALIDATION),)
    monkeypatch.setattr(prompts, "SHIPPED", chosen)
    for wanted, entry in zip(chosen, write_prompt_sets(tmp_path), strict=True):
        shipped = prompts._manifest()[prompts._key(wanted.identity())]
        assert entry == shipped
        assert entry["complete"]
        content = (tmp_path / entry["file"]).read_bytes()
        assert content == (prompts.FOLDER / entry["file"]).read_bytes()
        assert f"{entry['prompts']} prompts, all that there are".encode() in content


def loading(tmp_path: Path, text: str, wanted: PromptSet) -> str:
    """The error of loading a set of ``text`` whose checksum is right."""
    file = tmp_path / "set.csv"
    file.write_text(text)
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return raised_message(UserError, lambda: prompts._load(wanted, file, checksum, 10))


def test_a_changed_file_is_refused(tmp_path):
    file = tmp_path / "set.csv"
    file.write_text("# one prompt\nseed,digest\n1,abc\n")
    message = raised_message(UserError, lambda: prompts._load(PromptSet("bandit"), file, "0" * 64, 10))
    assert "set.csv: SHA-256 is" in message
    assert "the manifest says 000000000000" in message


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"file": "x"}]', "\x00"])
def test_a_damaged_manifest_is_named(tmp_path, monkeypatch, text):
    (tmp_path / "manifest.json").write_text(text)
    monkeypatch.setattr(prompts, "FOLDER", tmp_path)
    message = raised_message(UserError, prompts._manifest.__wrapped__)
    assert "manifest.json: cannot be read" in message
    assert "restore it" in message


def test_a_changed_environment_is_noticed_with_file_row_and_remedy(tmp_path):
    first = play(PromptSet("frozen_lake"), 1)[0]
    text = f"# two\nseed,digest\n{first.seed},{prompts._digest(first.observation)}\n"
    message = loading(tmp_path, f"{text}77,000000000000\n", PromptSet("frozen_lake"))
    assert "set.csv, row 2: seed 77 now gives a first observation with digest" in message
    assert "FrozenLake or numpy's generator changed" in message
    assert "python -m starpo.evaluation.prompts" in message


def test_a_prompt_of_another_split_or_a_repeated_one_is_refused(tmp_path):
    first = play(PromptSet("frozen_lake"), 1)[0]
    row = f"{first.seed},{prompts._digest(first.observation)}\n"
    head = "# some\nseed,digest\n"
    message = loading(tmp_path, head + row, PromptSet("frozen_lake", split=Split.VALIDATION))
    assert "row 1: the prompt belongs to split 'test', expected 'validation'" in message
    assert "row 2: the prompt was there before" in loading(
        tmp_path, head + row + row, PromptSet("frozen_lake")
    )


def test_a_small_split_repeats_its_prompts_and_says_how_many_there_are(caplog):
    found = play(PromptSet("frozen_lake", {"size": 2}), 30)
    distinct = len({each.observation for each in found})
    assert distinct < 30
    assert [each.observation for each in found[:distinct]] == [each.observation for each in found[distinct:]][
        :distinct
    ]
    assert f"frozen_lake has {distinct} distinct test prompts; the suite's 30 repeat them" in caplog.text


class OneTask(TextEnvironment):
    """An environment whose only observation lies in one split."""

    rules, action_names, return_range = "", ("Go",), (0.0, 0.0)

    def _begin(self, instance):
        return "the same", {"success": False}

    def _act(self, action):
        return "", 0.0, True, False, {"success": False, "effective": True}


def test_a_split_without_instances_is_refused():
    missing = next(split for split in Split if split is not split_of("the same"))
    wanted = PromptSet(f"{__name__}:OneTask", split=missing)
    message = raised_message(UserError, lambda: play(wanted, 3))
    assert f"has no instance of split '{missing.value}'" in message
    assert len(play(PromptSet(f"{__name__}:OneTask", split=split_of("the same")), 3)) == 3
