"""What a scored table says of each term, and the rewards that are learned from where returns are normalised."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from builders import turn_row, turns_table
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import recording

from starpo.algorithms.reward_norm import normalize_returns
from starpo.app.datasets import TableDataset
from starpo.config.environment import EnvironmentConfig
from starpo.config.reward import FilterConfig, NormalizeConfig
from starpo.gates.measures import schema_problem
from starpo.monitor.iteration_metrics import rollout_metrics
from starpo.rewards.bind import bind_terms
from starpo.rewards.trajectory import Missing, Trajectory
from starpo.scoring.scoring import mark_kept, score_turns
from starpo.scoring.states import known_states
from starpo.store.reading import read_table
from starpo.store.schemas import DETAILED_SCORED, SCORED

BOARD = "P_O\n___\n_OG"
LAKE = EnvironmentConfig(name="frozen_lake", arguments={"size": 3, "slippery": False})
SETS = recording("reward_norm.json")["sets"]


def whole(judged: Trajectory, group: list[Trajectory]) -> list[float | Missing]:
    """Fails unless it sees all that is stored; the second turn cannot be judged."""
    turn = judged.turns[0]
    assert (turn.observation, turn.thought, turn.actions) == (BOARD, "The goal is down.", ("Down",))
    assert (turn.next_observation, turn.info, turn.response_ids) == ("after", {"price": 3}, [4, 5])
    assert turn.state is not None
    assert turn.distance == 4
    assert judged.stop == "turn_limit"
    members = sorted(each.member for each in group)
    assert members == [each for each in (0, 1) if each != judged.member], "no faulty member"
    return [1.0 + turn.info["price"], Missing("fog")][: len(judged)]


def rows(*, group: int = 0, members: int = 2, turns: int = 2, **changes: Any) -> list[dict[str, Any]]:
    seen = {
        "observation": BOARD,
        "thought": "The goal is down.",
        "actions": ["Down"],
        "next_observation": "after",
        "info": '{"price": 3}',
    }
    return [
        turn_row(**{"group": group, "member": member, "turn": turn, "reward": float(member)} | seen | changes)
        for member in range(members)
        for turn in range(turns)
    ]


def scored(given_rows: list[dict[str, Any]], terms: dict[str, dict[str, Any]], **options: Any) -> pa.Table:
    return score_turns(turns_table(*given_rows), bind_terms(terms), states=known_states(LAKE), **options)


def test_a_term_sees_the_stored_trajectory_its_group_and_the_state() -> None:
    def judged(row: dict[str, Any]) -> dict[str, Any]:
        return json.loads(row["turn_terms"])["test_detailed_scores:whole"]

    table = scored(rows(), {"test_detailed_scores:whole": {"weight": 2}})
    assert [judged(row) for row in table.to_pylist()] == [[8, 0], [8, 0]]
    assert [row["return"] for row in table.to_pylist()] == [8, 8]
    assert json.loads(table["missing"][0].as_py()) == {"test_detailed_scores:whole": {"1": "fog"}}


def others(judged: Trajectory, group: list[Trajectory]) -> list[float]:
    return [float(len(group))] * len(judged)


def test_a_faulty_member_is_nobody_s_company() -> None:
    given_rows = [
        row | {"trajectory_stop": "environment_error"} if row["member"] == 2 else row
        for row in rows(members=3)
    ]
    table = scored([*given_rows, *rows(group=1)], {"test_detailed_scores:others": {}})
    found = {(row["group"], row["member"]): row["return"] for row in table.to_pylist()}
    assert found == {(0, 0): 2, (0, 1): 2, (0, 2): 4, (1, 0): 2, (1, 1): 2}


def test_the_default_s_table_has_no_further_column() -> None:
    assert scored(rows(), {"format_penalty": {}, "environment": {}}).schema == SCORED
    assert scored(rows(), {"turn_penalty": {}}).schema == DETAILED_SCORED
    assert (
        scored(rows(), {"environment": {}}, normalize=NormalizeConfig(method="mean")).schema
        == DETAILED_SCORED
    )


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 5, width=32), st.booleans()), min_size=1, max_size=5),
    st.floats(-3, 3),
)
def test_stored_terms_add_up_to_the_stored_rewards(turns: list[tuple[float, bool]], weight: float) -> None:
    given_rows = [
        rows(turns=1, members=1, reward=reward, format_valid=valid)[0] | {"turn": number}
        for number, (reward, valid) in enumerate(turns)
    ]
    terms = {
        "environment": {},
        "format_penalty": {"weight": weight},
        "grounding": {"weight": weight},
        "progress": {"gamma": 0.9},
    }
    (row,) = scored(given_rows, terms).to_pylist()
    per_turn = json.loads(row["turn_terms"])
    assert per_turn.keys() == terms.keys()
    for number, reward in enumerate(row["turn_rewards"]):
        assert sum(each[number] for each in per_turn.values()) == pytest.approx(reward, abs=1e-4)
    assert json.loads(row["terms"]) == pytest.approx({name: sum(each) for name, each in per_turn.items()})
    assert sum(row["turn_rewards"]) == pytest.approx(row["return"], abs=1e-4)
    assert row["learned_rewards"] == row["turn_rewards"]


def test_a_detailed_table_is_written_read_filtered_and_measured(tmp_path: Path) -> None:
    table = mark_kept(scored(rows(), {"environment": {}, "grounding": {}}), FilterConfig(keep_ratio=1.0))
    assert schema_problem(table.schema, "scored") is None
    file = tmp_path / "iter_0000.parquet"
    TableDataset(filepath=str(file), table="scored").save(table)
    assert pq.read_schema(file).names == DETAILED_SCORED.names
    assert read_table(file, "scored").to_pylist() == table.to_pylist()
    metrics = rollout_metrics(turns_table(*rows()), table)
    assert (metrics["term/environment"], metrics["term/grounding"]) == pytest.approx((1.0, 0.2))
    assert metrics["term_missing/grounding"] == 0


def test_turns_that_could_not_be_judged_are_counted() -> None:
    table = scored(rows(), {"environment": {}, "test_detailed_scores:whole": {}})
    metrics = rollout_metrics(turns_table(*rows()), table)
    assert metrics["term_missing/test_detailed_scores:whole"] == 2
    plain = scored(rows(), {"environment": {}})
    assert not any(name.startswith("term") for name in rollout_metrics(turns_table(*rows()), plain))


def test_normalised_rewards_keep_the_shares_of_turns_and_add_up_to_the_normalised_return() -> None:
    given_rows = [
        turn_row(member=member, turn=turn, reward=reward)
        for member, rewards in enumerate([(0.0, 1.0), (1.0, 2.0)])
        for turn, reward in enumerate(rewards)
    ]

    def learned(method: str) -> list[list[float]]:
        table = scored(given_rows, {"environment": {}}, normalize=NormalizeConfig(method=method))
        assert table["return"].to_pylist() == [1, 3], "the raw return stays"
        assert table["turn_rewards"].to_pylist() == [[0, 1], [1, 2]]
        return [
            [pytest.approx(each, abs=1e-5) for each in row] for row in table["learned_rewards"].to_pylist()
        ]

    assert learned("mean") == [[0, -1], [1, 0]]
    scale = 2**-0.5  # the unbiased deviation of 1 and 3 is the root of 2
    assert learned("mean_std") == [[0, -scale], [scale, 0]]


def test_the_filter_goes_by_raw_returns() -> None:
    wide = [turn_row(group=1, member=member, reward=9.0 * member) for member in range(2)]
    narrow = [turn_row(group=0, member=member, reward=float(member)) for member in range(2)]
    table = scored([*narrow, *wide], {"environment": {}}, normalize=NormalizeConfig(method="mean_std"))
    learned = [rewards[0] for rewards in table["learned_rewards"].to_pylist()]
    assert learned[:2] == pytest.approx(learned[2:], abs=1e-5), "normalised, the groups are alike"
    kept = mark_kept(table, FilterConfig(keep_ratio=0.5)).to_pylist()
    assert [row["kept"] for row in kept] == [False, False, True, True]
    assert [row["group_std"] for row in kept] == pytest.approx([0.5**0.5] * 2 + [40.5**0.5] * 2)


def test_a_quarantined_trajectory_has_no_part_in_normalisation() -> None:
    sound = [turn_row(member=member, reward=float(member)) for member in range(2)]
    faulty = turn_row(member=2, reward=500.0, trajectory_stop="environment_error")
    options = {"normalize": NormalizeConfig(method="mean", over="batch")}
    table = scored([*sound, faulty], {"environment": {}}, **options)
    assert table["learned_rewards"].to_pylist() == [[-0.5], [0.5], [500.0]]


@pytest.mark.parametrize("stored", SETS, ids=lambda stored: stored["name"])
def test_single_turns_are_normalised_by_the_peer_s_rule(stored: dict[str, Any]) -> None:
    raw = [score + penalty for score, penalty in zip(stored["scores"], stored["penalty"], strict=True)]
    groups = np.unique(stored["group_id"], return_inverse=True)[1].tolist()
    given_rows = [
        turn_row(group=group, member=member, reward=reward, environment=str(tag))
        for member, (group, reward, tag) in enumerate(zip(groups, raw, stored["tag"], strict=True))
    ]
    cases = {"group": groups, "batch": [0] * len(raw), "environment": stored["tag"]}
    for (over, labels), method in itertools.product(cases.items(), ("mean", "mean_std", "asym_clip")):
        table = scored(given_rows, {"environment": {}}, normalize=NormalizeConfig(method=method, over=over))
        ids = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
        exact = torch.tensor(table["turn_rewards"].to_pylist(), dtype=torch.float64)[:, 0]
        found = [rewards[0] for rewards in table["learned_rewards"].to_pylist()]
        assert found == pytest.approx(normalize_returns(exact, ids, method).tolist(), rel=1e-4, abs=1e-4)
