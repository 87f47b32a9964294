from __future__ import annotations

from pathlib import Path

import pytest
from written import write_run

from starpo.errors import UserError
from starpo.reporting.families import choose_runs, families_of, without_repeats


def names(runs: list) -> list[str]:
    return [run.name for run in runs]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("families")
    for seed in (0, 1):
        write_run(place, f"train_starpo_ppo-lake-seed{seed}", pipeline="train_starpo_ppo", seed=seed)
    for seed in (0, 1):
        write_run(place, f"train_starpo_s-lake-seed{seed}", seed=seed)
    write_run(place, "small-seed0", rollout={"groups": 1})
    write_run(place, "again", seed=1, iterations=1)
    write_run(place, "evaluate-x", pipeline="evaluate")
    return place


def test_patterns_choose_training_runs_by_name_each_once(root: Path) -> None:
    found = choose_runs(root, ["train_starpo_s-*", "train_*seed0"], None)
    assert names(found) == [
        "train_starpo_ppo-lake-seed0",
        "train_starpo_s-lake-seed0",
        "train_starpo_s-lake-seed1",
    ]


@pytest.mark.parametrize("pattern", ["nothing*", "evaluate-x"])
def test_a_pattern_without_a_training_run_is_refused_with_the_names_there_are(
    root: Path, pattern: str
) -> None:
    with pytest.raises(UserError, match=r"report\.runs.*small-seed0"):
        choose_runs(root, [pattern], None)


def test_without_patterns_the_source_comes_with_its_other_seeds(root: Path) -> None:
    found = choose_runs(root, None, "train_starpo_ppo-lake-seed1@0002")
    assert names(found) == ["train_starpo_ppo-lake-seed0", "train_starpo_ppo-lake-seed1"]


def test_without_source_the_newest_run_is_reported(root: Path) -> None:
    assert "again" in names(choose_runs(root, None, None))


def test_an_empty_project_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Train one"):
        choose_runs(tmp_path, None, None)


def test_seeds_of_one_experiment_are_a_family_and_other_parameters_make_another(root: Path) -> None:
    families = families_of(choose_runs(root, ["*-seed?"], None))
    assert [(family.label, names(list(family.runs))) for family in families] == [
        ("starpo_ppo", ["train_starpo_ppo-lake-seed0", "train_starpo_ppo-lake-seed1"]),
        ("starpo_s (small)", ["small-seed0"]),
        ("starpo_s (train_starpo_s-lake)", ["train_starpo_s-lake-seed0", "train_starpo_s-lake-seed1"]),
    ]


def test_a_seed_counts_once_and_the_longer_run_stays(root: Path) -> None:
    kept, repeated = without_repeats(choose_runs(root, ["again", "train_starpo_s-*"], None))
    assert names(kept) == ["train_starpo_s-lake-seed0", "train_starpo_s-lake-seed1"]
    assert repeated == ["again"]
