"""Advantage estimators: hand-worked rows, plain-loop re-derivations, invariances and degenerate batches."""

from __future__ import annotations

import dataclasses
import itertools
import time

import loop_references as loops
import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from starpo.algorithms.bilevel_gae import bilevel_gae, is_turn_end
from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.gae import gae, place_turn_rewards
from starpo.algorithms.gigpo import gigpo, turn_returns, turns_to_tokens
from starpo.algorithms.group import broadcast_to_tokens, grpo, reinforce_plus_plus_baseline, rloo
from starpo.algorithms.overlong import overlong_penalty
from starpo.algorithms.registry import ESTIMATORS, advantage_estimator
from starpo.algorithms.reinforce import discounted_returns

NAN = float("nan")
unit = st.sampled_from([0.0, 0.5, 0.9, 0.95, 1.0])


def batch(seed: int, rows: int = 4, columns: int = 12, turns: int = 3, **changes: Tensor) -> AdvantageBatch:
    """A random batch: each row has its own mask, spans and turns; NaN everywhere outside the mask."""
    rng = np.random.default_rng(seed)
    mask = torch.from_numpy(rng.random((rows, columns)) < 0.6)
    turn_index = torch.from_numpy(np.sort(rng.integers(0, turns, (rows, columns)), axis=1))
    values = torch.where(mask, torch.from_numpy(rng.normal(size=(rows, columns))), NAN)
    turn_mask = torch.from_numpy(np.arange(turns) < rng.integers(1, turns + 1, (rows, 1)))
    last = turn_mask.sum(dim=1, keepdim=True) - 1
    fields = {
        "mask": mask,
        "turn_index": torch.where(mask, torch.minimum(turn_index, last), -7),
        "turn_rewards": torch.where(turn_mask, torch.from_numpy(rng.normal(size=(rows, turns))), NAN),
        "turn_mask": turn_mask,
        "group_ids": torch.from_numpy(rng.integers(0, 2, rows)),
        "values": values,
        "anchors": torch.from_numpy(rng.integers(0, 3, (rows, turns))),
    }
    return AdvantageBatch(**(fields | changes))


def estimate(name: str, data: AdvantageBatch, **parameters: object) -> tuple[Tensor, Tensor]:
    return tuple(advantage_estimator(name, **parameters)(data))


# ---------------------------------------------------------------- hand-worked rows


def test_gae_by_hand_over_two_turns_with_environment_tokens_between():
    # prompt  s    s   env  env   s    pad
    mask = torch.tensor([[0, 1, 1, 0, 0, 1, 0]]).bool()
    turns = torch.tensor([[9, 0, 0, 9, 9, 1, 9]])
    values = torch.tensor([[NAN, 0.2, 0.4, NAN, NAN, 0.6, NAN]])
    rewards = place_turn_rewards(torch.tensor([[-0.1, 1.0]]), torch.tensor([[True, True]]), turns, mask)
    assert rewards.tolist() == [[0, 0, pytest.approx(-0.1), 0, 0, 1, 0]]
    result = gae(rewards, values, mask, gamma=0.5, lam=0.5)
    third = 1 - 0.6
    second = -0.1 + 0.5 * 0.6 - 0.4 + 0.25 * third
    first = 0.5 * 0.4 - 0.2 + 0.25 * second
    assert result.advantages[0].tolist() == pytest.approx([0, first, second, 0, 0, third, 0])
    assert result.returns[0].tolist() == pytest.approx([0, first + 0.2, second + 0.4, 0, 0, third + 0.6, 0])


def test_bilevel_by_hand_discounts_once_per_turn_and_once_per_token_inside_it():
    # turn            0  0  1  1
    mask = torch.ones(1, 4, dtype=torch.bool)
    turns = torch.tensor([[0, 0, 1, 1]])
    zero, rewards = torch.zeros(1, 4), torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    result = bilevel_gae(rewards, zero, mask, turns, gamma=0.9, lam=1.0, turn_gamma=0.5)
    assert result.advantages[0].tolist() == pytest.approx([0.9 * 0.5, 0.5, 0.9, 1.0])


def test_a_turn_that_earned_nothing_is_a_turn_for_bilevel_gae():
    mask, turns = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[0, 1, 2]])
    rewards, zero = torch.tensor([[0.0, 0.0, 1.0]]), torch.zeros(1, 3)
    assert bilevel_gae(rewards, zero, mask, turns, turn_gamma=0.5).advantages.tolist() == [[0.25, 0.5, 1.0]]


def test_rewards_of_empty_turns_move_to_the_nearest_sampled_token():
    mask = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]).bool()
    turns = torch.tensor([[0, 0, 2, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    rewards = torch.tensor([[1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 8.0], [1.0, 1.0, 1.0, 1.0]])
    placed = place_turn_rewards(rewards, torch.ones(3, 4, dtype=torch.bool), turns, mask)
    assert placed.tolist() == [[0, 3, 12, 0], [0, 0, 15, 0], [0, 0, 0, 0]]


def test_group_advantages_by_hand():
    returns, groups = torch.tensor([0.0, 1.0, 2.0, 7.0]), torch.tensor([3, 3, 3, 1])
    assert grpo(returns, groups).tolist() == pytest.approx([-1, 0, 1, 0], abs=1e-5)
    assert grpo(returns, groups, divide_by_std=False).tolist() == [-1, 0, 1, 0]
    assert rloo(returns, groups).tolist() == [-1.5, 0, 1.5, 0]


def test_one_member_alone_has_no_baseline_and_its_raw_return_only_if_asked_for():
    """Such as what quarantine leaves of a group: 10.9 beside differences of about 2 would drown them."""
    returns, groups = torch.tensor([0.0, 4.0, 10.9]), torch.tensor([0, 0, 1])
    tokens = torch.ones(3, 1, dtype=torch.bool)
    for estimator in (grpo, rloo):
        assert estimator(returns, groups).tolist()[2] == 0
        assert estimator(returns, groups, singletons="raw").tolist()[2] == pytest.approx(10.9)
    whitened = reinforce_plus_plus_baseline(returns, groups, tokens)[:, 0].tolist()
    assert whitened == pytest.approx([-1, 1, 0])


def test_gigpo_adds_a_comparison_between_turns_of_the_same_state():
    group_ids = torch.tensor([0, 0])
    # Turns: "start", then "left"; "start" alone.
    anchors = torch.tensor([[0, 1], [0, -1]])
    mask = anchors >= 0
    result = gigpo(
        torch.tensor([[0.0, 1.0], [0.0, NAN]]), mask, group_ids, anchors, gamma=0.5, divide_by_std=False
    )
    # Episode: +-0.5 around the mean 0.5. Step "start": returns 0.5 and 0, so +-0.25; "left" was met once.
    assert result.tolist() == [[0.75, 0.5], [-0.75, 0]]
    spread = turns_to_tokens(
        result, torch.tensor([[0, 9, 1], [0, 0, 9]]), torch.tensor([[1, 0, 1], [1, 1, 0]]).bool()
    )
    assert spread.tolist() == [[0.75, 0, 0.5], [-0.75, -0.75, 0]]


def test_overlong_penalty_grows_over_the_buffer():
    assert overlong_penalty([0, 300, 350, 400, 999], max_tokens=400, buffer=100).tolist() == [
        0,
        0,
        -0.5,
        -1,
        -1,
    ]


# ---------------------------------------------------------------- plain loops


@given(seed=st.integers(0, 10**6), gamma=unit, lam=unit)
def test_gae_equals_the_double_sum_over_sampled_tokens(seed, gamma, lam):
    data = batch(seed)
    rewards = data.token_rewards()
    result = gae(rewards, data.values, data.mask, gamma=gamma, lam=lam)
    for row in range(len(rewards)):
        expected = loops.gae_row(
            rewards[row].tolist(),
            data.values[row].tolist(),
            data.mask[row].tolist(),
            gamma=gamma,
            lam=lam,
        )
        assert result.advantages[row].tolist() == pytest.approx(expected, abs=1e-9)


@given(seed=st.integers(0, 10**6), gamma=unit, lam=unit, turn_gamma=unit, turn_lam=unit)
def test_bilevel_gae_equals_the_turn_by_turn_loop_with_rewards_inside_turns(
    seed, gamma, lam, turn_gamma, turn_lam
):
    data = batch(seed)
    per_token = torch.from_numpy(np.random.default_rng(seed).normal(size=tuple(data.mask.shape)))
    rewards = torch.where(data.mask, data.token_rewards() + per_token, NAN)
    factors = {"gamma": gamma, "lam": lam, "turn_gamma": turn_gamma, "turn_lam": turn_lam}
    result = bilevel_gae(rewards, data.values, data.mask, data.turn_index, **factors)
    for row in range(len(rewards)):
        expected = loops.bilevel_gae_row(
            rewards[row].tolist(),
            data.values[row].tolist(),
            data.mask[row].tolist(),
            data.turn_index[row].tolist(),
            **factors,
        )
        assert result.advantages[row].tolist() == pytest.approx(expected, abs=1e-9)


@given(
    returns=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=12),
    seed=st.integers(0, 99),
    by_std=st.booleans(),
)
def test_group_advantages_equal_the_loops(returns, seed, by_std):
    groups = np.random.default_rng(seed).integers(0, 4, len(returns))
    exact = torch.tensor(returns, dtype=torch.float64), torch.from_numpy(groups)
    ours = grpo(*exact, divide_by_std=by_std, singletons="raw")
    assert ours.tolist() == pytest.approx(loops.grpo_loop(returns, groups.tolist(), by_std), abs=1e-7)
    ours = rloo(*exact, singletons="raw")
    assert ours.tolist() == pytest.approx(loops.rloo_loop(returns, groups.tolist()), abs=1e-9)


@given(seed=st.integers(0, 10**6), gamma=unit)
def test_discounted_returns_equal_the_loop(seed, gamma):
    data = batch(seed)
    rewards = data.token_rewards()
    ours = discounted_returns(rewards, data.mask, gamma=gamma)
    for row in range(len(rewards)):
        expected = loops.discounted_row(rewards[row].tolist(), data.mask[row].tolist(), gamma)
        assert ours[row].tolist() == pytest.approx(expected, abs=1e-9)


# ---------------------------------------------------------------- invariances, for every registered estimator


def spread_out(data: AdvantageBatch, seed: int) -> tuple[AdvantageBatch, Tensor]:
    """The same batch with context columns inserted at random places; also the old columns' new positions."""
    columns = data.mask.shape[1]
    at = torch.from_numpy(np.sort(np.random.default_rng(seed).choice(3 * columns, columns, replace=False)))

    def widen(tensor: Tensor, fill: float) -> Tensor:
        wide = torch.full((tensor.shape[0], 3 * columns), fill, dtype=tensor.dtype)
        wide[:, at] = tensor
        return wide

    wide = AdvantageBatch(
        mask=widen(data.mask, False),
        turn_index=widen(data.turn_index, 3),
        turn_rewards=data.turn_rewards,
        turn_mask=data.turn_mask,
        group_ids=data.group_ids,
        values=widen(data.values, NAN),
        kl_rewards=None if data.kl_rewards is None else widen(data.kl_rewards, NAN),
        anchors=data.anchors,
    )
    return wide, at


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@examples(0.15)
@given(seed=st.integers(0, 10**6))
def test_inserting_context_tokens_anywhere_changes_no_advantage(name, seed):
    data = batch(seed)
    data = batch(seed, kl_rewards=torch.where(data.mask, 0.01 * data.values, NAN))
    wide, at = spread_out(data, seed)
    for here, there in zip(estimate(name, data), estimate(name, wide), strict=True):
        assert torch.allclose(here, there[:, at], atol=1e-12)
        assert torch.count_nonzero(there) == torch.count_nonzero(here)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@examples(0.15)
@given(seed=st.integers(0, 10**6))
def test_permuting_rows_permutes_the_result(name, seed):
    data = batch(seed, rows=6)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(6))
    shuffled = AdvantageBatch(
        **{field: None if value is None else value[order] for field, value in vars(data).items()}
    )
    for here, there in zip(estimate(name, data), estimate(name, shuffled), strict=True):
        assert torch.allclose(here[order], there, atol=1e-12)


@given(seed=st.integers(0, 10**6), gamma=unit, lam=unit)
def test_bilevel_with_one_turn_is_flat_gae_whatever_the_turn_factors(seed, gamma, lam):
    data = batch(seed, turns=1)
    rewards = data.token_rewards()
    flat = gae(rewards, data.values, data.mask, gamma=gamma, lam=lam)
    two = bilevel_gae(
        rewards, data.values, data.mask, data.turn_index, gamma=gamma, lam=lam, turn_gamma=gamma, turn_lam=lam
    )
    other = bilevel_gae(
        rewards, data.values, data.mask, data.turn_index, gamma=gamma, lam=lam, turn_gamma=0.3
    )
    assert torch.allclose(flat.advantages, two.advantages, atol=1e-12)
    assert torch.allclose(flat.advantages, other.advantages, atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_without_discounts_any_number_of_turns_is_flat_gae(seed):
    data = batch(seed)
    rewards = data.token_rewards() + torch.where(data.mask, 0.1, 0.0)
    flat = gae(rewards, data.values, data.mask)
    two = bilevel_gae(rewards, data.values, data.mask, data.turn_index, turn_gamma=1.0)
    assert torch.allclose(flat.advantages, two.advantages, atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_undiscounted_advantages_are_return_to_go_minus_value(seed):
    data = batch(seed)
    rewards = data.token_rewards()
    result = gae(rewards, data.values, data.mask)
    to_go = rewards.flip(1).cumsum(1).flip(1)
    assert torch.allclose(result.advantages[data.mask], (to_go - data.values)[data.mask])
    assert torch.allclose(result.returns[data.mask], to_go[data.mask])


@given(seed=st.integers(0, 10**6))
def test_placing_turn_rewards_keeps_each_trained_rows_return(seed):
    data = batch(seed)
    total = torch.where(data.turn_mask, data.turn_rewards, 0.0).sum(dim=1)
    expected = torch.where(data.mask.any(dim=1), total, 0.0)
    assert torch.allclose(data.token_rewards().sum(dim=1), expected)
    assert torch.allclose(data.returns(), total)


# ---------------------------------------------------------------- degenerate batches


def degenerate_batches() -> dict[str, AdvantageBatch]:
    single = torch.zeros(4, 12, dtype=torch.bool)
    single[1, 5] = True
    zero_turns = torch.zeros(4, 12, dtype=torch.int64)
    return {
        "all masked": batch(0, mask=torch.zeros(4, 12, dtype=torch.bool)),
        "one token": batch(
            0, mask=single, turn_index=zero_turns, values=torch.where(single, 0.5, NAN).double()
        ),
        "one masked row": batch(1, mask=batch(1).mask & torch.tensor([[True], [False], [True], [True]])),
        "singleton groups": batch(2, group_ids=torch.arange(4)),
        "one trajectory": batch(3, rows=1),
        "equal returns": batch(4, turn_rewards=torch.ones(4, 3).double(), turn_mask=torch.ones(4, 3).bool()),
        "all rewards zero": batch(5, turn_rewards=torch.zeros(4, 3).double()),
        "no columns": batch(6, columns=1, mask=torch.zeros(4, 1, dtype=torch.bool)),
    }


@pytest.mark.parametrize(("name", "kind"), list(itertools.product(sorted(ESTIMATORS), degenerate_batches())))
def test_degenerate_batches_give_finite_advantages_that_are_zero_outside_the_mask(name, kind):
    data = degenerate_batches()[kind]
    for tensor in estimate(name, data):
        assert torch.isfinite(tensor).all()
        assert torch.count_nonzero(tensor[~data.mask]) == 0


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce_plus_plus_baseline", "gigpo"])
def test_a_group_of_equal_returns_has_no_advantage(name):
    data = batch(
        7,
        turn_rewards=torch.full((4, 3), 0.1).double(),
        turn_mask=torch.ones(4, 3).bool(),
        group_ids=torch.zeros(4, dtype=torch.int64),
        anchors=torch.arange(12).reshape(4, 3),
    )
    assert float(estimate(name, data)[0].abs().max()) < 1e-9


SHARED = ["grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gigpo"]


def split_returns(returns: list[float], splits: list[tuple[float, ...]]) -> AdvantageBatch:
    """One token per turn; each return as the turn rewards of its split, the last turn taking what is left."""
    turns = max(len(split) for split in splits) + 1
    rewards = torch.zeros(len(returns), turns, dtype=torch.float64)
    for row, (total, split) in enumerate(zip(returns, splits, strict=True)):
        rewards[row, : len(split)] = torch.tensor(split, dtype=torch.float64)
        rewards[row, turns - 1] = total - sum(split)
    everything = torch.ones(len(returns), turns, dtype=torch.bool)
    return AdvantageBatch(
        mask=everything,
        turn_index=torch.arange(turns).expand(len(returns), turns),
        turn_rewards=rewards,
        turn_mask=everything,
        group_ids=torch.arange(len(returns)) // 4,
        anchors=torch.arange(len(returns) * turns).reshape(len(returns), turns),
    )


@pytest.mark.parametrize("name", [name for name in SHARED if name != "reinforce_plus_plus"])
def test_eight_wins_of_equal_return_have_no_advantage_however_their_rewards_fall_on_turns(name):
    """Seven win by one answer of two moves, worth 10.8, one by two answers worth -0.1 and 10.9."""
    data = split_returns([10.8] * 8, [()] * 7 + [(-0.1,)])
    data = dataclasses.replace(data, group_ids=torch.zeros(8, dtype=torch.int64))
    assert estimate(name, data)[0].tolist() == torch.zeros(8, 2).tolist()


@pytest.mark.parametrize("name", SHARED)
@given(
    returns=st.lists(st.sampled_from([-1.3, -0.1, 0.0, 0.3, 10.8, 10.9]), min_size=8, max_size=8),
    splits=st.lists(
        st.lists(st.sampled_from([-0.1, 0.1, 0.7, -1.1, 9.9]), max_size=3).map(tuple), min_size=8, max_size=8
    ),
)
def test_advantages_do_not_depend_on_how_a_return_is_split_over_turns(name, returns, splits):
    parameters = {"gamma": 1.0} if name in {"reinforce_plus_plus", "gigpo"} else {}
    whole = estimate(name, split_returns(returns, [()] * 8), **parameters)[0]
    parts = estimate(name, split_returns(returns, splits), **parameters)[0]
    # Of the first token on, the return is the whole one in every estimator; no state is met twice.
    if name.startswith("reinforce"):
        # Whitened over tokens, of which there are more here than there: compare before the scale.
        order = torch.argsort(whole[:, 0], stable=True)
        assert bool((parts[order, 0].diff() >= -1e-9).all())
    else:
        assert torch.allclose(parts[:, 0], whole[:, 0], atol=1e-6)


def test_a_baseline_whitened_over_the_batch_has_mean_zero_and_unit_variance():
    data = batch(8)
    advantages = reinforce_plus_plus_baseline(data.returns(), data.group_ids, data.mask)[data.mask]
    assert float(advantages.mean()) == pytest.approx(0, abs=1e-9)
    assert float(advantages.std()) == pytest.approx(1, abs=1e-6)


def test_a_turn_return_skips_missing_turns():
    result = turn_returns(torch.tensor([[1.0, NAN, 2.0]]), torch.tensor([[True, False, True]]), gamma=0.5)
    assert result.tolist() == [[2.0, 0.0, 2.0]]


def test_turn_ends_come_from_turns_not_from_rewards():
    ends = is_turn_end(torch.tensor([[1, 1, 0, 1]]).bool(), torch.tensor([[0, 0, 9, 1]]))
    assert ends.int().tolist() == [[0, 1, 0, 1]]


def test_errors_name_the_argument_and_the_value():
    zero, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\], got 1.5"):
        gae(zero, zero, mask, gamma=1.5)
    with pytest.raises(ValueError, match=r"shaped like the mask \(1, 2\), got \(1, 3\)"):
        gae(zero, torch.zeros(1, 3), mask)
    with pytest.raises(TypeError, match=r"mask\.bool\(\)"):
        gae(zero, zero, mask.int())
    with pytest.raises(ValueError, match="turn_index of sampled tokens"):
        place_turn_rewards(torch.zeros(1, 1), torch.ones(1, 1).bool(), torch.tensor([[0, 1]]), mask)
    with pytest.raises(ValueError, match="vectors of one length"):
        grpo(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="singletons must be one of"):
        grpo(torch.zeros(2), torch.zeros(2), singletons="mean")
    with pytest.raises(ValueError, match="one advantage per row"):
        broadcast_to_tokens(torch.zeros(3), mask)
    with pytest.raises(ValueError, match="needs critic values"):
        estimate("gae", batch(0, values=None))
    with pytest.raises(ValueError, match="buffer must be in"):
        overlong_penalty([1], max_tokens=4, buffer=5)


def test_gae_of_an_iteration_takes_well_under_a_second():
    mask = torch.rand(512, 400) < 0.7
    zero, turns = torch.zeros(512, 400), torch.zeros(512, 400, dtype=torch.int64)
    begin = time.perf_counter()
    gae(zero, zero, mask, gamma=0.99, lam=0.95)
    bilevel_gae(zero, zero, mask, turns)
    assert time.perf_counter() - begin < 2.0
