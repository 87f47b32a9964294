"""Dealing groups to several environments, and what the rest of an iteration makes of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from builders import ScriptedEngine, agent, turn_row, turns_table
from hypothesis import given
from hypothesis import strategies as st

from starpo.agent.template import ChatTemplate
from starpo.base_policy.demonstrations import demonstrated
from starpo.base_policy.tokenizer import build_tokenizer
from starpo.config.base_policy import WarmStartStage
from starpo.config.environment import EnvironmentConfig, MixtureMember
from starpo.config.reward import FilterConfig
from starpo.environments.splits import Split
from starpo.errors import UserError
from starpo.gates.expected import return_ranges
from starpo.learning.batching import sequences_of
from starpo.monitor.iteration_metrics import rollout_metrics
from starpo.rewards.bind import bind_terms
from starpo.rollout.episodes import RolloutPlan, play
from starpo.rollout.mixture import deal, group_counts
from starpo.scoring.scoring import mark_kept, score_turns
from starpo.seeds import Purpose, SeedKey
from starpo.store.policies import load_tokenizer
from starpo.store.trajectory_table import trajectories_to_table

WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6)


def key(seed: int = 0, iteration: int = 0) -> SeedKey:
    return SeedKey(seed, Purpose.MIXTURE, "train", iteration)


@given(WEIGHTS, st.integers(1, 300))
def test_counts_are_whole_exact_and_within_one_of_their_share(weights: list[float], groups: int) -> None:
    counts = group_counts(weights, groups)
    assert sum(counts) == groups
    for weight, count in zip(weights, counts, strict=True):
        assert abs(count - weight / sum(weights) * groups) < 1 + 1e-6


@given(WEIGHTS, st.integers(1, 300), st.floats(0.001, 1000))
def test_only_the_ratio_of_weights_matters(weights: list[float], groups: int, factor: float) -> None:
    assert group_counts([weight * factor for weight in weights], groups) == group_counts(weights, groups)


@given(WEIGHTS, st.integers(1, 300), st.integers(0, 1000))
def test_dealing_has_the_exact_counts_and_repeats_for_a_key(
    weights: list[float], groups: int, seed: int
) -> None:
    dealt = deal(weights, groups, key(seed))
    assert [dealt.count(number) for number in range(len(weights))] == group_counts(weights, groups)
    assert dealt == deal(weights, groups, key(seed))


def test_iterations_and_seeds_deal_in_different_orders() -> None:
    orders = {tuple(deal([1, 1], 32, key(seed, iteration))) for seed in range(3) for iteration in range(3)}
    assert len(orders) == 9


def test_what_is_left_goes_to_the_largest_remainders() -> None:
    assert group_counts([0.5, 0.3, 0.2], 4) == [2, 1, 1]
    assert group_counts([0.1, 0.26, 0.64], 10) == [1, 3, 6]


def test_equal_remainders_go_to_the_earlier_environment() -> None:
    assert group_counts([1, 1, 1], 4) == [2, 1, 1]
    assert group_counts([0.5, 0.3, 0.2], 10) == [5, 3, 2]


MIXTURE = (
    MixtureMember(name="odd_environments:Counter", weight=3, label="counter"),
    MixtureMember(name="odd_environments:Finishing", weight=1, label="finishing", reward_scale=10),
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(["Count. count 1 coin 2"], ["<answer>"], vocabulary=300, directory=folder)
    template = ChatTemplate.of(load_tokenizer(folder))
    engine = ScriptedEngine.saying(template, "<think>a</think><answer>Add</answer>")
    drawn = RolloutPlan("both", {}, Split.TRAIN, "train", 0, 0, 8, 2, 1.0, mixture=MIXTURE)
    limits: dict[str, Any] = {"max_tokens_per_turn": 200, "max_tokens_per_trajectory": 4000, "max_turns": 2}
    trajectories = play(engine, drawn, agent(**limits), template)
    return trajectories_to_table(trajectories, policy_step=0, temperature=1.0, top_p=1.0)


def test_rows_carry_their_environment_and_a_group_has_one(mixed: pa.Table) -> None:
    frame = mixed.to_pandas()
    assert (frame.groupby("group")["environment"].nunique() == 1).all()
    first = frame[frame["turn"] == 0]
    assert first.groupby("environment", observed=True)["group"].nunique().to_dict() == {
        "counter": 6,
        "finishing": 2,
    }
    assert (first.groupby("group")["instance_seed"].nunique() == 1).all()


def test_rewards_are_scaled_where_they_are_scored_and_stay_as_they_came_in_the_rollouts(
    mixed: pa.Table,
) -> None:
    scales = {member.known_as: member.reward_scale for member in MIXTURE}
    scored = score_turns(mixed, bind_terms({"environment": {}}), scales=scales).to_pandas()
    assert set(scored[scored["environment"] == "counter"]["return"]) == {2.0}
    finishing = scored[scored["environment"] == "finishing"]
    assert set(finishing["return"]) == {10.0}
    assert set(finishing["environment_return"]) == {1.0}
    assert set(mixed.to_pandas()["reward"]) == {1.0}


def test_learner_and_metrics_keep_the_environments_apart(mixed: pa.Table) -> None:
    scored = mark_kept(
        score_turns(mixed, bind_terms({"environment": {}})),
        FilterConfig(keep_ratio=1.0, keep_zero_spread=True),
    )
    metrics = rollout_metrics(mixed, scored)
    assert (metrics["success/finishing"], metrics["success/counter"], metrics["success"]) == (1.0, 0.0, 0.25)
    assert (metrics["groups/counter"], metrics["groups_kept/finishing"]) == (6, 2)
    keys = list(zip(scored["group"].to_pylist(), scored["member"].to_pylist(), strict=True))
    batch = sequences_of(mixed, dict(zip(keys, scored["turn_rewards"].to_pylist(), strict=True)), set(keys))
    by_key = dict(zip(batch.keys, batch.environments, strict=True))
    assert by_key == dict(zip(keys, scored["environment"].to_pylist(), strict=True))


def test_one_environment_has_no_metrics_of_its_own() -> None:
    turns = turns_table(turn_row())
    scored = score_turns(turns, bind_terms({"environment": {}}))
    assert not [name for name in rollout_metrics(turns, scored) if "/" in name]


def test_ranges_go_by_label() -> None:
    config = EnvironmentConfig(name="both", mixture=list(MIXTURE))
    assert return_ranges(config) == {"counter": (0.0, 100.0), "finishing": (0.0, 100.0)}


def test_demonstrations_come_from_members_with_a_solver() -> None:
    config = EnvironmentConfig(
        name="three",
        mixture=[
            *MIXTURE,
            MixtureMember(name="bandit", weight=1),
            MixtureMember(name="frozen_lake", weight=2),
        ],
    )

    def names(share: float) -> list[str]:
        stage = WarmStartStage(demonstrations=10, careful_share=share, learning_rate=0.1)
        return [member.known_as for member in demonstrated(config, stage)]

    assert names(0.5) == ["bandit", "frozen_lake"]
    assert len(names(0.0)) == 4
    alone = EnvironmentConfig(name="odd_environments:Counter")
    with pytest.raises(
        UserError, match=r"careful_share = 1 needs a solver, and odd_environments_Counter has none"
    ):
        demonstrated(alone, WarmStartStage(demonstrations=10, learning_rate=0.1))
