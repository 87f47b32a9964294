"""One update of a random network on made-up rows: gradients and rates derived again in plain torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from builders import algorithm, learner_config, optimizer, perturbed, store
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from starpo.learning.batching import Sequences
from starpo.learning.deepspeed_engine import TrainedModule
from starpo.learning.learner import Learner
from starpo.store.policies import Policy

TEMPERATURE = 1.4
#                context sampled context sampled padding
TURNS = [[-1, -1, 0, 0, 0, -1, 1, 1, -1], [-1, -1, 0, 0, -1, -1, 1, 1, 1], [-1, 0, 0, -1, -1, -1, -1, -1, -1]]
ROWS = [TURNS[0], TURNS[1], TURNS[2], TURNS[1]]
REWARDS = [[0.0, 1.0], [0.5, 0.0], [-0.2, 0.0], [0.0, 0.3]]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Policy]:
    """A run's first policy, and one that has gone away from it."""
    folder = tmp_path_factory.mktemp("by_hand")
    config = LlamaConfig(
        vocab_size=23,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    config.save_pretrained(folder)
    weights = model.state_dict()
    first = store(folder, model_files=folder, weights=weights)
    later = perturbed(weights, seed=1)
    return first, store(folder, model_files=folder, weights=later, iteration=1, status="trained")


def made_up() -> Sequences:
    """Four rows of one group; the engine's log-probs are far enough off for both clips to act."""
    draw = np.random.default_rng(0)
    turns = torch.tensor(ROWS)
    mask = turns >= 0
    lengths = np.array([int(row.nonzero().max()) + 1 for row in mask])
    shape = tuple(mask.shape)
    return Sequences(
        keys=[(0, member) for member in range(4)],
        token_ids=torch.from_numpy(draw.integers(0, 23, shape)),
        lengths=lengths,
        mask=mask,
        old_logp=torch.where(mask, torch.from_numpy(-3.1 + 0.5 * draw.normal(size=shape)).float(), 0.0),
        turn_index=turns.clamp(min=0),
        turn_rewards=torch.tensor(REWARDS, dtype=torch.float64),
        turn_mask=torch.tensor([[True, True], [True, True], [True, False], [True, True]]),
        group_ids=torch.zeros(4, dtype=torch.int64),
        anchors=torch.zeros(4, 2, dtype=torch.int64),
        environments=["bandit"] * 4,
        starts=[[0]] * 4,
    )


def learner(policy: Policy, algo: dict[str, Any], **changes: Any) -> Learner:
    return Learner(policy, learner_config(**changes), algorithm(**algo), temperature=TEMPERATURE)


def distributions(policy: Policy, batch: Sequences) -> tuple[LlamaForCausalLM, list[Tensor]]:
    """A network with the policy's weights, and for each row its log-probs [sampled tokens, V]."""
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(policy.directory))
    model.load_state_dict(policy.tensors("weights") or {})
    rows = []
    for ids, mask in zip(batch.token_ids, batch.mask, strict=True):
        logits = model(input_ids=ids[None]).logits[0] / TEMPERATURE
        rows.append(logits.log_softmax(-1)[mask.nonzero()[:, 0] - 1])
    return model, rows


def chosen(rows: list[Tensor], batch: Sequences) -> Tensor:
    ids = [ids[mask] for ids, mask in zip(batch.token_ids, batch.mask, strict=True)]
    return torch.cat([row.gather(1, of[:, None])[:, 0] for row, of in zip(rows, ids, strict=True)])


def gradients(
    module: str, actor: Learner, batch: Sequences, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Tensor]:
    """What the only step of ``module``, ``_actor`` or ``_critic``, would step along."""
    found: dict[str, Tensor] = {}

    def instead(trained: TrainedModule) -> tuple[float, float]:
        named = trained.engine.module.named_parameters()
        if trained is getattr(actor, module):
            found.update({name: p.grad.clone() for name, p in named if p.grad is not None})
        return 0.0, 0.0

    with monkeypatch.context() as patch:
        patch.setattr(TrainedModule, "step", instead)
        actor.update(batch, seed=0, iteration=0)
    return found


@pytest.mark.parametrize("entropy", [0.0, 0.3])
@pytest.mark.parametrize("kl", [0.0, 0.2])
def test_the_actor_s_gradient_is_that_of_the_clipped_surrogate_minus_entropy_plus_kl(
    policies: tuple[Policy, Policy], monkeypatch: pytest.MonkeyPatch, entropy: float, kl: float
) -> None:
    first, policy = policies
    batch = made_up()
    algo = {
        "estimator": "rloo",
        "policy_loss_parameters": {"clip_low": 0.2, "clip_high": 0.28},
        "entropy_coefficient": entropy,
        "kl_coefficient": kl,
    }
    found = gradients("_actor", learner(policy, algo, rows_per_step=4), batch, monkeypatch)
    model, rows = distributions(policy, batch)
    new, old = chosen(rows, batch), batch.old_logp[batch.mask]
    returns = batch.turn_rewards.sum(1)
    others = (returns.sum() - returns) / 3
    advantage = (returns - others).float()[:, None].expand(batch.mask.shape)[batch.mask]
    losses = []
    for one, before, gain in zip(new, old, advantage, strict=True):
        ratio = (one - before).exp()
        inside = ratio.clamp(0.8, 1.28)
        losses.append(torch.maximum(-gain * ratio, -gain * inside))
    ratios = (new - old).exp()
    assert bool(((ratios > 1.28) & (advantage > 0)).any()), "the upper clip acts"
    assert bool(((ratios < 0.8) & (advantage < 0)).any()), "the lower clip acts"
    spread = torch.cat([-(row.exp() * row).sum(1) for row in rows])
    loss = torch.stack(losses).mean() - entropy * spread.mean()
    distance = new - chosen(distributions(first, batch)[1], batch).detach()
    loss = loss + kl * ((-distance).exp() - 1 + distance).mean()
    loss.backward()
    assert found
    for name, parameter in model.named_parameters():
        assert torch.allclose(found[f"model.{name}"], parameter.grad, atol=2e-6), name


def test_a_step_with_the_entropy_bonus_alone_raises_the_entropy(policies: tuple[Policy, Policy]) -> None:
    batch = made_up()
    equal = torch.zeros_like(batch.turn_rewards)
    calm = Sequences(**{**vars(batch), "turn_rewards": equal})
    actor = learner(
        policies[1],
        {"estimator": "grpo", "entropy_coefficient": 1.0},
        rows_per_step=4,
        epochs=5,
        actor=optimizer(learning_rate=1e-2),
    )
    before = actor.update(calm, seed=0, iteration=0).metrics["entropy"]
    assert actor.update(calm, seed=0, iteration=1).metrics["entropy"] > before + 0.005


def test_the_critic_s_gradient_is_that_of_half_the_squared_distance_to_the_returns(
    policies: tuple[Policy, Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, batch = policies[1], made_up()
    actor = learner(policy, {"estimator": "gae"}, rows_per_step=4)
    head = actor._critic.engine.module.head
    with torch.no_grad():
        head.weight.copy_(torch.linspace(-1, 1, 32)[None])
        head.bias.fill_(0.1)
    found = gradients("_critic", actor, batch, monkeypatch)
    model, _ = distributions(policy, batch)
    weight = torch.linspace(-1, 1, 32).requires_grad_()
    errors = []
    for ids, mask, turns, rewards in zip(
        batch.token_ids, batch.mask, batch.turn_index, batch.turn_rewards, strict=True
    ):
        hidden = model.model(input_ids=ids[None]).last_hidden_state[0]
        for column in mask.nonzero()[:, 0]:
            value = hidden[column - 1] @ weight + 0.1
            errors.append(0.5 * (value - rewards[turns[column] :].sum().float()) ** 2)
    torch.stack(errors).mean().backward()
    assert torch.allclose(found["head.weight"][0], weight.grad, atol=1e-5)
    for name, parameter in model.model.named_parameters():
        assert torch.allclose(found[f"decoder.{name}"], parameter.grad, atol=1e-5), name


def test_rates_rise_over_the_warm_up_and_fall_to_zero_at_the_end_of_the_decay(
    policies: tuple[Policy, Policy],
) -> None:
    settings = {"rows_per_step": 4, "epochs": 1}
    rising = learner(
        policies[1],
        {"estimator": "grpo"},
        actor=optimizer(learning_rate=1.0e-3, warmup_updates=4),
        **settings,
    )
    falling = learner(
        policies[1], {"estimator": "grpo"}, actor=optimizer(learning_rate=1.0e-3, decay_updates=4), **settings
    )
    rates = [
        [actor.update(made_up(), seed=0, iteration=i).metrics["learning_rate"] for i in range(5)]
        for actor in (rising, falling)
    ]
    assert rates[0] == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3])
    assert rates[1] == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3, 0])


def test_while_the_critic_warms_up_the_actor_stays_where_it_is(policies: tuple[Policy, Policy]) -> None:
    actor = learner(policies[1], {"estimator": "gae"}, critic_warmup=1, rows_per_step=4)
    before, critic = actor.weights(), actor.parts()["critic"]
    actor.update(made_up(), seed=0, iteration=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in actor.weights().items())
    assert not torch.equal(critic["head.weight"], actor.parts()["critic"]["head.weight"])
    actor.update(made_up(), seed=0, iteration=1)
    assert not all(torch.equal(before[name], tensor) for name, tensor in actor.weights().items())


def test_kl_in_the_reward_is_paid_by_each_token_before_the_advantages_are_taken(
    policies: tuple[Policy, Policy],
) -> None:
    first, policy = policies
    batch = made_up()
    algo = {"estimator": "rloo", "kl_coefficient": 0.5, "kl_in": "reward", "kl_estimator": "k1"}
    actor = learner(policy, algo, rows_per_step=4, old_logprobs="recompute")
    found = actor.update(batch, seed=0, iteration=0).advantages
    new, base = (chosen(distributions(each, batch)[1], batch).detach() for each in (policy, first))
    paid = torch.zeros(batch.mask.shape).masked_scatter(batch.mask, 0.5 * (new - base)).sum(1)
    returns = batch.turn_rewards.sum(1) - paid
    expected = (returns - (returns.sum() - returns) / 3).float()
    for row, mask in enumerate(batch.mask):
        assert torch.allclose(found[row, mask], expected[row], atol=1e-5)


def test_gradients_are_cut_at_the_largest_norm(policies: tuple[Policy, Policy]) -> None:
    batch = made_up()
    free, cut = (
        learner(policies[1], {"estimator": "rloo"}, rows_per_step=4, actor=optimizer(gradient_clip=clip))
        for clip in (1e6, 1e-3)
    )
    norms = [actor.update(batch, seed=0, iteration=0).metrics["gradient_norm"] for actor in (free, cut)]
    assert norms[0] == pytest.approx(norms[1]), "reported before the cut"
    moments = [actor.parts()["actor_moments"] for actor in (free, cut)]
    size = [
        float(torch.stack([t.norm() for name, t in each.items() if name.startswith("exp_avg/")]).norm())
        for each in moments
    ]
    assert size[0] == pytest.approx(0.1 * norms[0], rel=1e-3)
    assert size[1] == pytest.approx(0.1 * 1e-3, rel=1e-2)
