"""The networks of a learner, built from a stored policy: actor, critic where advantages need one, reference."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from starpo.algorithms.finite import checked_file
from starpo.algorithms.registry import estimator_needs
from starpo.config.algorithm import AlgorithmConfig
from starpo.config.learner import LearnerConfig
from starpo.learning import lora
from starpo.learning.deepspeed_engine import TrainedModule, learner_device
from starpo.learning.models import Actor, Critic
from starpo.store.policies import Policy, first_policy
from starpo.store.policy_state import MODEL, PARTS, Adapter, contiguous

logger = logging.getLogger(__name__)

Reference = Callable[..., tuple[Tensor, Tensor]]
"""Called as the actor is; gives log-probs and entropies."""


class Networks:
    """Actor, critic and reference, with what is stored of them.

    With LoRA they are adapters on frozen copies of one base, of which actor and critic share a single one unless
    ZeRO 3 splits it over ranks.
    """

    def __init__(self, policy: Policy, config: LearnerConfig, algorithm: AlgorithmConfig) -> None:
        self._lora = config.lora
        self._base = lora.base_for(policy, config.lora) if config.lora else policy.model_directory
        model = _causal_model(self._base, config)
        self._width = int(model.config.hidden_size)
        trunk = None
        if estimator_needs(algorithm.estimator).critic:
            trunk = self._critic_trunk(model, config)
        if config.lora is not None:
            lora.attach(model, config.lora, role="actor")
        self.actor = TrainedModule(Actor(model), config.actor, config)
        self.critic: TrainedModule | None = None
        if trunk is not None:
            critic = Critic(trunk, self._width).to(_dtype(config))
            self.critic = TrainedModule(critic, config.critic, config)
        decoder = model.get_decoder()
        self._trunk = next(name for name, module in model.named_modules() if module is decoder)
        networks = {"actor": self.actor, "critic": self.critic} if config.lora else {}
        self._fresh = {role: network.weights() for role, network in networks.items() if network}
        self.reference: Reference | None = None
        if algorithm.kl_coefficient:
            self.reference = self._reference_policy(policy, config)

    def _critic_trunk(self, model: Any, config: LearnerConfig) -> Any:
        if config.lora is None or config.zero_stage == 3:
            trunk = _causal_model(self._base, config).get_decoder()
        else:
            decoder = model.get_decoder()
            trunk = copy.deepcopy(decoder, {id(weight): weight for weight in decoder.parameters()})
        if config.lora is not None:
            lora.attach(trunk, config.lora, role="critic")
        return trunk

    def _reference_policy(self, policy: Policy, config: LearnerConfig) -> Reference:
        first = first_policy(policy).model_directory
        if self._lora is not None and first == self._base:
            return self._without_adapters
        reference = Actor(_causal_model(first, config))
        return reference.to(learner_device(config)).eval().requires_grad_(False)

    def _without_adapters(self, *args: Any, **kwargs: Any) -> Any:
        with lora.without_adapters(self.actor.engine.module):
            return self.actor(*args, **kwargs)

    def restore(self, policy: Policy) -> None:
        """Take over a stored policy's weights, moments and counters.

        The state of a run with other adapters, or without any, gives its weights only. Raises ``UserError`` naming the
        file that holds a number with which nothing can be computed.
        """
        mine = lora.continues(policy, self._lora)
        untrained = not policy.counters["actor_steps"]
        if not mine and not untrained:
            logger.warning(
                "%s was not trained with these adapters: its weights are kept, optimizer and critic start afresh",
                policy.identity,
            )
        counters = policy.counters if mine else {"actor_steps": 0, "critic_steps": 0}
        self.actor.restore(
            self._actor_weights(policy),
            _stored(policy, "actor_moments") if mine else None,
            int(counters["actor_steps"]),
        )
        if self.critic is not None:
            critic = _stored(policy, "critic") if mine else None
            moments = _stored(policy, "critic_moments") if critic else None
            weights = critic or self._untrained_critic(policy)
            self.critic.restore(weights, moments, int(counters["critic_steps"]) if critic else 0)

    def _untrained_critic(self, policy: Policy) -> dict[str, Tensor]:
        """The policy's own trunk (or fresh adapters) and a head of zeros: what a run starts with and goes back to."""
        if self._lora is not None:
            return self._fresh["critic"]
        start = f"{self._trunk}."
        weights = _stored(policy, "weights") or {}
        trunk = {
            f"decoder.{name.removeprefix(start)}": tensor
            for name, tensor in weights.items()
            if name.startswith(start)
        }
        head = {"head.weight": torch.zeros(1, self._width), "head.bias": torch.zeros(1)}
        return trunk | head

    def _actor_weights(self, policy: Policy) -> dict[str, Tensor]:
        """The trained tensors of the actor by the module's names."""
        if self._lora is None:
            weights = _stored(policy, "weights") or {}
            return {f"model.{name}": tensor for name, tensor in weights.items()}
        base = lora.base_for(policy, self._lora)
        if base != self._base:
            raise ValueError(f"{policy.identity} belongs to the base {base}, this learner holds {self._base}")
        adapter = _stored(policy, "adapter") if lora.continues(policy, self._lora) else None
        return self._fresh["actor"] if adapter is None else lora.from_file_names(adapter, "model")

    def weights(self) -> dict[str, Tensor]:
        """Float32 weights of the policy, named as in the Hugging Face model; an adapter is merged in."""
        adapter = self.adapter()
        if self._lora is None or adapter is None:
            weights = {name.removeprefix("model."): tensor for name, tensor in self.actor.weights().items()}
        else:
            weights = lora.merge(load_file(self._base / MODEL).items(), adapter.tensors, self._lora)
        return contiguous(weights)

    def adapter(self) -> Adapter | None:
        """The actor's adapter as PEFT stores it; None where all weights are trained."""
        if self._lora is None:
            return None
        tensors = contiguous(lora.to_file_names(self.actor.weights(), "model"))
        return Adapter(lora.file_settings(self._lora, self._base), tensors)

    def parts(self) -> dict[str, dict[str, Tensor]]:
        """Optimizer moments and critic, for a complete learner state."""
        parts = {"actor_moments": contiguous(self.actor.moments())}
        if self.critic is not None:
            parts["critic"] = contiguous(self.critic.weights())
            parts["critic_moments"] = contiguous(self.critic.moments())
        return parts


def _stored(policy: Policy, part: str) -> dict[str, Tensor] | None:
    """``policy.tensors(part)``, checked."""
    tensors = policy.tensors(part)
    return tensors and dict(checked_file(tensors.items(), policy.model_directory / PARTS[part]))


def _dtype(config: LearnerConfig) -> torch.dtype:
    return getattr(torch, config.dtype)


def _causal_model(directory: Path, config: LearnerConfig) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    settings = _without_dropout(AutoConfig.from_pretrained(directory, local_files_only=True))
    model = AutoModelForCausalLM.from_pretrained(
        directory, config=settings, dtype=_dtype(config), local_files_only=True
    )
    checked_file(model.named_parameters(), directory / MODEL)
    if config.gradient_checkpointing:
        _recompute(model)
    return model


def _without_dropout(settings: Any) -> Any:
    """A ratio compares two log-probs of one function, so nothing may be drawn, in training neither."""
    for name, value in vars(settings.get_text_config()).items():
        if "drop" in name and isinstance(value, float):
            setattr(settings.get_text_config(), name, 0.0)
    return settings


def _recompute(model: Any) -> None:
    """Keep the inputs of the layers only; the backward pass computes the rest again."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for module in model.modules():
        # Transformers recomputes in training mode only. Nothing else needs that mode, so nothing else gets it.
        if getattr(module, "gradient_checkpointing", False):
            module.training = True
