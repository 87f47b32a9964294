"""A suite's two ends, and a policy's place between them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from played import Dice, play, read

from starpo.environments.records import Limits
from starpo.environments.registry import make
from starpo.environments.solvers import optimal_actions
from starpo.environments.splits import Instance, Split, draw_instance
from starpo.errors import UserError
from starpo.evaluation.glossary import MEASURED
from starpo.evaluation.metrics import summarise
from starpo.evaluation.prompts import fixed_prompts
from starpo.evaluation.reference import FLOOR_EPISODES, measured, on_scale, suite_reference
from starpo.seeds import Purpose, SeedKey

LIMITS = Limits(turns=5, actions_per_turn=5, actions=10)
DICE = "played:Dice"


def reference(name: str, prompts: int = 6, *, limits: Limits = LIMITS, seed: int = 0, **arguments) -> dict:
    instances = tuple(Instance(seed=100 + number, attempt=0, observation="") for number in range(prompts))
    return suite_reference(name, arguments, instances, limits, suite="suite", seed=seed)


def won(name: str, *groups: int) -> list:
    """The optimum played on the given prompts."""
    env, rows = make(name), []
    for group in groups:
        env.reset(seed=100 + group)
        rows.append(play(env, [optimal_actions(env)], group=group, instance_seed=100 + group))
    return rows


@pytest.mark.parametrize("name", ["frozen_lake", "frozen_lake_no_slip", "sokoban", "bandit"])
def test_the_floor_is_below_the_optimum_and_everything_is_plain_json(name: str) -> None:
    found = reference(name)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["floor_episodes"] == 0
    columns = found["prompts"]
    assert {len(values) for values in columns.values()} == {6}
    for quantity in ("success", "return"):
        pairs = zip(columns[f"floor_{quantity}"], columns[f"optimum_{quantity}"], strict=True)
        assert all(low < high for low, high in pairs)
        assert found[f"optimum_{quantity}"] == pytest.approx(np.mean(columns[f"optimum_{quantity}"]))


def test_playing_the_optimum_is_worth_one_on_both_scales() -> None:
    trajectories = read(*won("sokoban", 0, 1, 2, 3))
    measures = measured(trajectories, reference("sokoban"))
    scale = on_scale(summarise(trajectories.turns), measures)
    assert scale["success_of_optimum"] == 1
    assert scale["return_normalised"] == pytest.approx(1, abs=1e-6)
    assert scale["return_normalised_low"] < 1 < scale["return_normalised_high"]


def test_tighter_limits_lower_both_ends() -> None:
    wide, tight = (reference("sokoban", 20, limits=limits) for limits in (LIMITS, Limits(2, 2, 10)))
    assert wide["optimum_success"] == 1
    assert 0 < tight["optimum_success"] < 1
    assert tight["optimum_return"] < wide["optimum_return"]
    assert tight["floor_success"] < wide["floor_success"]


def test_only_prompts_with_a_trajectory_count() -> None:
    full = reference("sokoban")
    measures = measured(read(*won("sokoban", 1, 4)), full)
    columns = full["prompts"]
    for name in ("optimum_return", "floor_return", "floor_success"):
        assert measures[name] == pytest.approx((columns[name][1] + columns[name][4]) / 2)
    assert measures.keys() <= MEASURED.keys()


def test_bounds_move_with_the_estimate() -> None:
    summary = {"success": 0.6, "success_low": 0.5, "success_high": 0.7}
    summary |= {"return": 1.0, "return_low": 0.0, "return_high": 2.0}
    measures = {"optimum_success": 0.8, "optimum_return": 3.0, "floor_return": -1.0}
    assert on_scale(summary, measures) == pytest.approx(
        {
            "success_of_optimum": 0.75,
            "success_of_optimum_low": 0.625,
            "success_of_optimum_high": 0.875,
            "return_normalised": 0.5,
            "return_normalised_low": 0.25,
            "return_normalised_high": 0.75,
        }
    )


@pytest.mark.parametrize(
    "measures",
    [
        {},
        {"optimum_success": 0.0, "optimum_return": 0.0, "floor_return": 0.0},
        {"floor_return": 0.1, "floor_success": 0.1},
    ],
)
def test_what_cannot_be_scaled_is_left_out(measures: dict[str, float]) -> None:
    summary = {"success": 0.0, "success_low": 0.0, "success_high": 0.1, "return": 0.0}
    assert on_scale(summary, measures) == {}


class TestAnEnvironmentWithoutASolver:
    def test_has_no_optimum_and_a_simulated_floor_with_its_interval(self) -> None:
        found = reference(DICE, prompts=60)
        assert "optimum_success" not in found
        assert "optimum_success" not in found["prompts"]
        assert found["floor_episodes"] == FLOOR_EPISODES
        expected = 1 - (5 / 6) ** 3
        error = math.sqrt(expected * (1 - expected) / (60 * FLOOR_EPISODES))
        assert found["floor_success"] == pytest.approx(expected, abs=4 * error)
        rows = [play(Dice(), [["Roll"]], group=group, instance_seed=100 + group) for group in range(60)]
        measures = measured(read(*rows), found)
        assert measures["floor_success_low"] < measures["floor_success"] < measures["floor_success_high"]
        assert on_scale({"success": 0.2, "return": 0.2}, measures) == {}

    def test_is_simulated_alike_each_time_and_otherwise_with_another_seed(self) -> None:
        assert reference(DICE) == reference(DICE)
        assert reference(DICE, 60) != reference(DICE, 60, seed=1)

    def test_keeps_to_the_limits(self) -> None:
        once = reference(DICE, 60, limits=Limits(1, 1, 5))
        assert once["floor_success"] == pytest.approx(1 / 6, abs=0.06)


def test_free_text_actions_have_no_floor_either() -> None:
    found = reference("played:Wordless")
    assert set(found["prompts"]) == {"instance_seed"}


def test_a_reference_of_other_prompts_is_refused() -> None:
    rows = won("sokoban", 0, 1)
    rows[1] = [row | {"instance_seed": 5} for row in rows[1]]
    with pytest.raises(UserError, match="prompt 1 was played with instance seed 5, the reference has 101"):
        measured(read(*rows), reference("sokoban"))
    with pytest.raises(UserError, match="only 1 prompts"):
        measured(read(*won("sokoban", 0, 1)), reference("sokoban", 1))


def test_a_shop_has_a_floor_and_an_optimum_of_its_own():
    env = make("webshop_easy")
    instances = [
        draw_instance(env, split=Split.TEST, key=SeedKey(0, Purpose.INSTANCE, "shop", group=group))
        for group in range(8)
    ]
    found = suite_reference("webshop_easy", {}, instances, Limits(9, 1, 9), suite="shop", seed=0)
    assert found["optimum_return"] == pytest.approx(1.0)
    assert 0 <= found["floor_return"] < 0.3


DOCS = Path(__file__).resolve().parents[2] / "docs/evaluation.md"
CONF = Path(__file__).resolve().parents[2] / "conf/base/parameters_evaluation.yml"
#: Those of a second or less; the slippery ones with blocks of five take several each.
QUICK = (
    "frozen_lake_8x8",
    "sokoban",
    "sokoban_different_vocab",
    "sokoban_large",
    "bandit",
    "bandit_occupations",
)


@pytest.mark.parametrize("suite", [*QUICK, "bandit_reversed"])
def test_the_documented_ends_of_a_suite_are_what_is_measured(suite: str) -> None:
    (row,) = (line for line in DOCS.read_text().splitlines() if line.startswith("|") and f"`{suite}`" in line)
    documented = [float(cell) for cell in row.strip("| ").split("|")[1:]]
    evaluation = yaml.safe_load(CONF.read_text())["evaluation"]
    chosen = evaluation["suites"][suite]
    arguments, seed = chosen.get("arguments", {}), evaluation["seed"]
    instances = fixed_prompts(
        chosen["environment"], arguments, split=Split(chosen["split"]), seed=seed, prompts=chosen["prompts"]
    )
    limits = Limits(1, 1, 1) if suite.startswith("bandit") else LIMITS
    found = suite_reference(chosen["environment"], arguments, instances, limits, suite=suite, seed=seed)
    measured_ends = [found[f"{end}_{name}"] for name in ("success", "return") for end in ("optimum", "floor")]
    assert [round(each, 3) for each in measured_ends] == documented
