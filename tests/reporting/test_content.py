"""What is gathered from the files of runs."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from builders import PROJECT
from hypothesis import given
from hypothesis import strategies as st
from written import BOARD, HOSTILE, SUITE, write_run

from starpo.config.monitor import MonitorConfig
from starpo.config.report import ReportConfig
from starpo.reporting.content import gather
from starpo.reporting.families import families_of
from starpo.reporting.side_by_side import side_by_side
from starpo.reporting.summary import collapse, cost, final_rows, mean_of, suite_rows
from starpo.reporting.trajectories import sample_run, spread_out

MONITOR = MonitorConfig(
    **yaml.safe_load((PROJECT / "conf/base/parameters_monitor.yml").read_text())["monitor"]
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """StarPO with two seeds beside StarPO-S with three, whose last policies solve 2, 3 and 4 of 4 prompts."""
    place = tmp_path_factory.mktemp("content")
    for seed in range(2):
        write_run(place, f"ppo-seed{seed}", pipeline="train_starpo_ppo", seed=seed, success=(0.25, 0.5))
    for seed in range(3):
        write_run(place, f"s-seed{seed}", seed=seed, success=(0.25, 0.5 + 0.25 * seed))
    return place


@pytest.fixture(scope="module")
def content(root: Path) -> dict[str, Any]:
    return gather(root, ReportConfig(runs=["*"]), MONITOR, None)


def test_every_seed_has_a_row_with_its_paired_difference_and_every_family_a_mean(
    content: dict[str, Any],
) -> None:
    rows = [row for row in content["summary"]["final"] if row["family"] == 1]
    assert [row["run"] for row in rows] == ["s-seed0", "s-seed1", "s-seed2", None]
    assert [row["success_difference"] for row in rows] == pytest.approx([0.25, 0.5, 0.75, 0.5])
    # 0.5 +- 4.302653 * 0.25 / sqrt(3)
    assert rows[-1]["success_difference_low"] == pytest.approx(0.5 - 0.62103, abs=2e-4)
    # All seeds began with one policy: no interval over seeds.
    assert "success_before_low" not in rows[-1]


def test_pipelines_are_compared_seed_by_seed(content: dict[str, Any]) -> None:
    (row,) = content["summary"]["differences"]
    assert (row["of"], row["minus"], row["seeds"]) == (1, 0, 2)
    # Seeds 0 and 1: 0.5 - 0.5 and 0.75 - 0.5; two seeds give no interval.
    assert row["difference"] == pytest.approx(0.125)
    assert "difference_low" not in row


@given(values=st.lists(st.floats(0, 1), min_size=3, max_size=5))
def test_an_interval_over_seeds_holds_the_mean_and_only_shares_that_there_are(values: list[float]) -> None:
    row = mean_of("success_after", values)
    if len(row) == 3:
        assert 0 <= row["success_after_low"] <= row["success_after"] <= row["success_after_high"] <= 1


def test_charts_have_a_line_per_family(content: dict[str, Any]) -> None:
    charts = {chart["metric"]: chart for chart in content["summary"]["charts"]}
    success = charts["success"]
    assert [line["family"] for line in success["lines"]] == [0, 1]
    assert success["lines"][1]["band"]["mid"] == [0.25, 0.5]
    assert [run["run"] for run in success["lines"][1]["runs"]] == ["s-seed0", "s-seed1", "s-seed2"]
    assert "approx_kl" not in charts  # no run measured it


def test_evaluations_of_the_reported_policies_are_shown_and_those_of_others_are_not(root: Path) -> None:
    summary = {"suite": "frozen_lake_8x8", "success": 1 / 3, "failures.loop": 0.25, "harness_changed": False}
    for policy in ("s-seed0@0002", "other@0002"):
        folder = root / "data/08_reporting" / f"evaluate-{policy}"
        folder.mkdir(parents=True)
        (folder / "evaluation.json").write_text(json.dumps({"policy": policy, "evaluations": [summary]}))
    (row,) = suite_rows(root, _runs(root))
    numbers = {"success": 0.3333, "failures.loop": 0.25}
    assert row == {"policy": "s-seed0@0002", "suite": "frozen_lake_8x8"} | numbers


def test_a_run_that_has_not_ended_is_left_out_of_the_final_table(tmp_path: Path) -> None:
    run = write_run(tmp_path, "open")
    next((tmp_path / "data/08_reporting/open").glob("*.json")).unlink()
    assert final_rows(families_of([run])) == []


def test_a_token_has_its_advantage_where_the_update_saw_it(content: dict[str, Any]) -> None:
    run = content["trajectories"]["runs"][0]
    assert [each["iteration"] for each in run["iterations"]] == [0, 1]
    spread, flat = run["iterations"][1]["groups"]
    assert (spread["group"], flat["group"]) == (0, 1)
    turn = spread["members"][1]["turns"][1]
    assert turn["ids"] == [4, 5]
    assert turn["context"] == [1, 2, 3]
    assert turn["advantages"] == [0.5, -1.25]
    assert turn["logprobs"] == [-0.5, -1.5]
    assert turn["reward"] == 1.0
    assert turn["observation"] == BOARD


def test_a_trajectory_that_was_filtered_has_no_advantages_and_says_why(content: dict[str, Any]) -> None:
    flat = content["trajectories"]["runs"][0]["iterations"][0]["groups"][1]
    for member in flat["members"]:
        assert not member["kept"]
        assert member["reason"] == "zero_spread"
        assert all("advantages" not in turn for turn in member["turns"])


def test_fewer_groups_and_iterations_are_sampled_when_asked(root: Path) -> None:
    run = next(iter(families_of(_runs(root)))).runs[0]
    sampled = sample_run(run, iterations=2, groups=1)
    assert [len(each["groups"]) for each in sampled["iterations"]] == [1, 1]
    assert sampled["iterations"][0]["of"] == 2


def test_the_empty_tables_of_a_run_that_stopped_are_passed_over(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    run = next(iter(families_of(_runs(tmp_path)))).runs[0]
    for layer in ("02_rollouts", "03_scored"):
        path = tmp_path / "data" / layer / run.name / "iter_0001.parquet"
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    sampled = sample_run(run, iterations=2, groups=1)
    assert [each["iteration"] for each in sampled["iterations"]] == [0]


def test_the_same_prompts_are_shown_under_the_first_and_the_best_policy(root: Path) -> None:
    run = next(run for run in _runs(root) if run.name == "s-seed2")
    side = side_by_side(run, run.evaluation_summary().to_dict("records"), prompts=3)
    assert side is not None
    assert side["suite"] == SUITE
    assert [(policy["role"], policy["step"]) for policy in side["policies"]] == [
        ("base", 0),
        ("last, best", 2),
    ]
    # Prompts 1, 2 and 3 tell the two apart; half of three is one of them, then come the suite's first.
    assert side["prompts"] == [0, 1, 2]
    outcomes = [[each["success"] for each in policy["prompts"]] for policy in side["policies"]]
    assert outcomes == [[True, False, False], [True, True, True]]
    assert side["policies"][0]["prompts"][0]["turns"][0]["thought"] == HOSTILE


def test_a_run_with_one_evaluated_policy_has_nothing_side_by_side(root: Path) -> None:
    run = _runs(root)[0]
    assert side_by_side(run, [{"suite": SUITE, "step": 0, "success": 0.5}], prompts=3) is None


def test_seconds_and_tokens_add_up(root: Path) -> None:
    run = _runs(root)[0]
    spent = cost(run, [{"rollout_tokens": 16.0, "trained_tokens": 8}] * 2, [{"response_tokens": 5}])
    assert spent["seconds_total"] == 16.0
    assert spent["seconds"] == {
        "rollout": 4.0, "reward": 0.0, "filter": 0.0, "update": 10.0, "sync": 1.0, "other": 1.0,
    }  # fmt: skip
    assert (spent["sampled_tokens"], spent["trained_tokens"], spent["evaluation_tokens"]) == (32, 16, 5)
    assert spent["tokens_per_second"] == 8.0


def test_a_fall_of_success_is_an_alarm_with_its_onset(root: Path) -> None:
    run = _runs(root)[0]
    success = [0.5] * 12 + [0.0] * 12
    metrics = [
        {"iteration": number, "success": value, "return": value} for number, value in enumerate(success)
    ]
    found = collapse(run, metrics, MONITOR.model_copy(update={"standard_errors": 0.0}))
    assert found["verdict"] == "alarm"
    assert 12 <= found["alarm"] < 20
    assert ["alarm" in event for event in found["events"]].count(True) >= 2


@given(st.lists(st.sampled_from([0.0, 0.3, 0.9]), min_size=1, max_size=40), st.integers(0, 7))
def test_stages_of_an_indicator_cover_the_run_without_gap_or_overlap(values: list[float], first: int) -> None:
    metrics = [
        {"iteration": first + number, "success": value, "return": value, "entropy": 1.0 - value}
        for number, value in enumerate(values)
    ]
    found = collapse(_Named(), metrics, MONITOR.model_copy(update={"standard_errors": 0.0}))  # type: ignore[arg-type]
    for spans in found["spans"].values():
        covered = [number for start, end, _ in spans for number in range(start, end + 1)]
        assert covered == list(range(first, first + len(values)))
        assert all(one[2] != other[2] for one, other in itertools.pairwise(spans))


@given(st.integers(1, 60), st.integers(2, 12))
def test_spread_out_keeps_the_ends_and_the_order(length: int, count: int) -> None:
    chosen = spread_out(range(length), count)
    assert len(chosen) == min(length, count)
    assert chosen == sorted(set(chosen))
    assert (chosen[0], chosen[-1]) == (0, length - 1)


class _Named:
    """What the monitor needs to know of a run."""

    name = "run"
    parameters = {"rollout": {"groups": 8}}  # noqa: RUF012


def _runs(root: Path) -> list[Any]:
    from starpo.reporting.families import choose_runs

    return choose_runs(root, ["*"], None)
