"""Looking up estimators and losses by name or import path."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from starpo.algorithms import estimators, policy_loss
from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.gae import Advantages
from starpo.algorithms.registry import (
    ESTIMATORS,
    POLICY_LOSSES,
    advantage_estimator,
    estimator_needs,
    policy_loss_function,
)
from starpo.errors import UserError
from starpo.plugins import parameter_names
from starpo.rewards.bind import FOLDER
from starpo.rewards.registry import TERMS


def own_estimator(batch: AdvantageBatch, *, scale: float = 1.0) -> Advantages:
    """What a user may write: every sampled token gets ``scale``."""
    advantages = torch.where(batch.mask, scale, 0.0)
    return Advantages(advantages, advantages)


def tiny_batch(values: bool = True) -> AdvantageBatch:
    mask = torch.ones(2, 1, dtype=torch.bool)
    return AdvantageBatch(
        mask=mask,
        turn_index=torch.zeros(2, 1, dtype=torch.int64),
        turn_rewards=torch.tensor([[0.0], [1.0]]),
        turn_mask=mask,
        group_ids=torch.zeros(2, dtype=torch.int64),
        values=torch.zeros(2, 1) if values else None,
        anchors=torch.zeros(2, 1, dtype=torch.int64),
    )


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_runs_by_name_and_prefers_the_better_trajectory(name):
    result = advantage_estimator(name)(tiny_batch())
    assert float(result.advantages[1, 0]) > float(result.advantages[0, 0])


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_only_the_estimators_that_say_so_need_a_critic(name):
    if estimator_needs(name).critic:
        with pytest.raises(ValueError, match="needs critic values"):
            advantage_estimator(name)(tiny_batch(values=False))
    else:
        advantage_estimator(name)(tiny_batch(values=False))


def test_parameters_reach_the_function():
    batch = tiny_batch()
    raw = advantage_estimator("gae", whiten=False)(batch)
    assert raw.advantages.tolist() == [[0], [1]]
    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    loss = policy_loss_function("ppo", clip_high=0.1)(torch.full((1, 1), 5.0), zero, one, one > 0)
    assert float(loss.loss) == pytest.approx(-1.1)
    assert POLICY_LOSSES["gspo"] is policy_loss.gspo_loss


def test_a_users_own_function_is_found_by_its_import_path():
    result = advantage_estimator("test_registry_of_algorithms:own_estimator", scale=3.0)(tiny_batch())
    assert result.advantages.tolist() == [[3], [3]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gea", "unknown advantage estimator 'gea'; known: bilevel_gae, dr_grpo, gae, gigpo, grpo"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("math:no_such_function", "'math' has no function 'no_such_function'"),
        ("math:", "unknown advantage estimator 'math:'"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(name, message):
    with pytest.raises(UserError, match=message) as error:
        advantage_estimator(name)
    assert "module:function" in str(error.value)


def test_an_unknown_parameter_is_refused_before_any_work():
    with pytest.raises(UserError, match=r"'rloo' has no parameter 'lamda'; it takes: singletons"):
        advantage_estimator("rloo", lamda=1.0)
    assert parameter_names(estimators.rloo) == ("singletons",)


@pytest.mark.parametrize(
    ("kind", "known", "page"),
    [
        ("estimator", ESTIMATORS, "algorithms"),
        ("loss", POLICY_LOSSES, "algorithms"),
        ("term", TERMS, "rewards"),
    ],
)
def test_a_page_has_a_row_with_the_parameters_of_everything_registered(kind, known, page):
    page = (Path(__file__).resolve().parents[2] / f"docs/{page}.md").read_text()
    for name, function in known.items():
        (row,) = [
            line for line in page.splitlines() if line.startswith(f"| `{name}` |") and "arXiv" in line
        ] or [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        for parameter in set(parameter_names(function)) - {FOLDER}:
            assert f"`{parameter}`" in row, f"{kind} {name}"


def test_only_the_estimators_that_compare_members_say_so():
    alone = {name for name in ESTIMATORS if not estimator_needs(name).group}
    assert alone == {"gae", "bilevel_gae", "reinforce_plus_plus"}


def test_a_kl_penalty_in_the_reward_is_part_of_the_return():
    batch = tiny_batch()
    penalised = AdvantageBatch(**(vars(batch) | {"kl_rewards": torch.tensor([[0.0], [-0.25]])}))
    assert penalised.returns().tolist() == [0, 0.75]
    assert penalised.token_rewards().tolist() == [[0], [0.75]]
    gigpo = advantage_estimator("gigpo", divide_by_std=False)
    assert gigpo(penalised).advantages.tolist() == [[-0.75], [0.75]]
