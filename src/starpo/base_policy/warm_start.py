"""Warm starts: the embedded base policy, a small Llama with its own tokenizer built here, or a pretrained model.

No download: weights are drawn from a seed, or are the pretrained ones, and fitted to demonstrations on training
instances by maximum likelihood of the demonstrated tokens, the same token ledgers and the same loss mask as in a
rollout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from starpo.agent.prompt import fixed_phrases, system_message
from starpo.agent.template import ChatTemplate
from starpo.base_policy.demonstrations import CAREFUL_THOUGHT, Demonstrator, demonstrate, demonstrating
from starpo.base_policy.tokenizer import build_tokenizer
from starpo.config.agent import AgentConfig
from starpo.config.base_policy import BasePolicyConfig
from starpo.config.environment import EnvironmentConfig
from starpo.environments.registry import make
from starpo.environments.solvers import has_solver
from starpo.environments.splits import Split, draw_instance
from starpo.heartbeat import beat
from starpo.learning.models import Actor
from starpo.learning.prefix_tree import prefix_tree
from starpo.rollout.isolated import EnvironmentBuilder
from starpo.seeds import Purpose, SeedKey
from starpo.store.policies import load_tokenizer

#: Instances whose texts train the tokenizer: enough to see every word of the environment.
TOKENIZER_INSTANCES = 400
#: The smallest that vLLM's CPU attention has a kernel for.
HEAD_DIMENSION = 32
WARMUP_SHARE = 0.03
GRADIENT_CLIP = 1.0
BETAS = (0.9, 0.98)


def build_base_policy(
    directory: Path, environment: EnvironmentConfig, agent: AgentConfig, config: BasePolicyConfig
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Write tokenizer and config into ``directory``; return the weights and what the fit came to."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(directory, environment, agent, config)
    tokenizer = load_tokenizer(directory)
    template = ChatTemplate.of(tokenizer)
    model = new_model(len(tokenizer), template, agent, config)
    model.config.save_pretrained(directory)
    model.generation_config.save_pretrained(directory)
    fit = {"parameters": float(sum(p.numel() for p in model.parameters()))}
    fit |= _imitate(model, template, environment, agent, config, torch.device("cpu"))
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}, fit


def warm_start_pretrained(
    directory: Path,
    weights: dict[str, Tensor],
    environment: EnvironmentConfig,
    agent: AgentConfig,
    config: BasePolicyConfig,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Fit the pretrained model in ``directory`` to the demonstrations of ``config.stages``, in float32.

    Args:
        directory: a Hugging Face model directory with its tokenizer.
        weights: the tensors stored there, by name; tied ones occur once.
        environment: whose training instances are demonstrated.
        agent: the format to imitate.
        config: shares, sizes and learning rates of the stages.

    Returns:
        The fitted tensors under the names of ``weights``, and what the fit came to.
    """
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True)
    template = ChatTemplate.of(load_tokenizer(directory))
    fit = _imitate(model.to(device), template, environment, agent, config, device)
    fitted = model.state_dict()
    return {name: fitted[name].detach().cpu().clone() for name in weights}, fit


def _imitate(
    model: Any,
    template: ChatTemplate,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    config: BasePolicyConfig,
    device: torch.device,
) -> dict[str, float]:
    """Train ``model`` on one stage of demonstrations after the other; success and loss of each."""
    fit = {}
    for number in range(len(config.stages)):
        trajectories = demonstrate(environment, agent, config, number, template)
        successes = [trajectory.turns[-1].success for trajectory in trajectories]
        fit[f"demonstrator_success_{number}"] = float(np.mean(successes))
        fit[f"loss_{number}"] = _fit(Actor(model), trajectories, config, number, device)
    return fit


def new_model(vocabulary: int, template: ChatTemplate, agent: AgentConfig, config: BasePolicyConfig) -> Any:
    """A Llama with random weights from the base policy's seed, untied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    seed = SeedKey(config.seed, Purpose.WEIGHTS).integer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary,
                hidden_size=config.hidden_size,
                intermediate_size=3 * config.hidden_size,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.heads,
                head_dim=HEAD_DIMENSION,
                max_position_embeddings=agent.max_tokens_per_trajectory,
                tie_word_embeddings=False,
                eos_token_id=template.turn_end,
                bos_token_id=None,
                pad_token_id=template.tokenizer.pad_token_id,
            )
        ).float()


def _write_tokenizer(
    directory: Path, environment: EnvironmentConfig, agent: AgentConfig, config: BasePolicyConfig
) -> None:
    texts: list[str] = []
    phrases: list[str] = []
    build = EnvironmentBuilder(environment)
    for number, member in enumerate(environment.members):
        env = build(member.name, **member.arguments)
        stage = config.stages[-1]
        if not has_solver(env):
            stage = stage.model_copy(update={"careful_share": 0.0})
        demonstrator = Demonstrator(stage, agent, config.max_plan)
        names: set[str] = set()
        for group in range(TOKENIZER_INSTANCES):
            key = SeedKey(config.seed, Purpose.DEMONSTRATION, "tokenizer", group=group, member=number)
            with demonstrating(member.known_as):
                instance = draw_instance(env, split=Split.TRAIN, key=key)
                texts += [instance.observation, demonstrator.respond(env, key.generator())]
            names.update(env.action_names)
        texts.append(system_message(env.rules, agent))
        phrases += [*fixed_phrases(env.rules, agent), *env.phrases, *names]
    build_tokenizer(texts, [*phrases, CAREFUL_THOUGHT], vocabulary=config.vocabulary, directory=directory)


def _fit(
    actor: Actor, trajectories: list[Any], config: BasePolicyConfig, number: int, device: torch.device
) -> float:
    """Maximum likelihood of the demonstrated tokens; returns the mean loss of the last tenth, nats per token."""
    chains = [chain for trajectory in trajectories for chain in trajectory.chains()]
    lengths = np.array([len(chain.token_ids) for chain in chains])
    peak = config.stages[number].learning_rate
    optimizer = torch.optim.AdamW(actor.parameters(), lr=peak, betas=BETAS, weight_decay=0.0)
    shuffle = SeedKey(config.seed, Purpose.SHUFFLE, f"warm start {number}").generator()
    parts = list(_length_buckets(lengths, config.batch_tokens, shuffle))
    steps = [parts[i] for i in shuffle.permutation(len(parts))]
    losses = []
    for step, rows in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = peak * _schedule(step / len(steps))
        width = int(lengths[rows].max())
        ids = torch.zeros(len(rows), width, dtype=torch.int64)
        mask = torch.zeros(len(rows), width, dtype=torch.bool)
        for at, row in enumerate(rows):
            ids[at, : lengths[row]] = torch.tensor(chains[row].token_ids)
            mask[at, : lengths[row]] = torch.tensor(chains[row].sampled)
        logp, _ = actor(prefix_tree(ids, mask).to(device), mask.to(device))
        loss = -logp.sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(actor.parameters(), GRADIENT_CLIP)
        optimizer.step()
        losses.append(float(loss.detach()))
        beat()
    return float(np.mean(losses[-max(1, len(losses) // 10) :]))


def _length_buckets(lengths: np.ndarray, tokens: int, shuffle: np.random.Generator) -> Iterator[np.ndarray]:
    """Parts of similar length, drawn from shuffled chunks so that no epoch repeats a batch.

    A part, padded to its longest row, has at most ``tokens`` tokens; a row longer than that comes alone.
    """
    order = shuffle.permutation(len(lengths))
    chunk = max(1, 16 * tokens // int(lengths.mean()))
    for begin in range(0, len(order), chunk):
        rows = order[begin : begin + chunk]
        ordered = rows[np.argsort(lengths[rows], kind="stable")]
        start = 0
        for end in range(1, len(ordered) + 1):
            if end == len(ordered) or (end + 1 - start) * lengths[ordered[end]] > tokens:
                yield ordered[start:end]
                start = end


def _schedule(progress: float) -> float:
    """Linear warm-up, then cosine to zero; ``progress`` in [0, 1)."""
    if progress < WARMUP_SHARE:
        return (progress + 1e-3) / WARMUP_SHARE
    return 0.5 * (1 + math.cos(math.pi * progress))


def harness_of(environment: EnvironmentConfig, agent: AgentConfig) -> dict[str, Any]:
    """What belongs to a policy beside its weights: prompt, parser settings, limits."""
    messages = {
        member.known_as: system_message(make(member.name, **member.arguments).rules, agent)
        for member in environment.members
    }
    harness = {
        "agent": agent.model_dump(),
        "prompt": agent.prompt.model_dump(),
        "environment": environment.identity(),
        "system_message": "\n\n".join(messages.values()),
    }
    return dict(json.loads(json.dumps(harness)))
