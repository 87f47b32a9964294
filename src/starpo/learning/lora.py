"""Low-rank adapters (LoRA, arXiv 2106.09685): W + alpha / rank · B A with W frozen, A and B trained.

A policy trained this way is stored twice: as adapter in PEFT's format, and merged, as the model that engines and
users load. It is merged anew from the frozen base after every update and never in place, so nothing accumulates.
Adapters have no dropout: the ratio of a policy gradient compares two log-probs of one function.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from starpo.config.learner import LoraConfig
from starpo.errors import UserError
from starpo.seeds import Purpose, SeedKey
from starpo.store.layout import policy_name
from starpo.store.policies import Policy
from starpo.store.policy_state import BASE, MANIFEST, MODEL

#: PEFT's name of the only adapter inside a module, and what it puts before names in a file.
_NAME, _PREFIX = ".default.", "base_model.model."


def attach(model: nn.Module, config: LoraConfig, *, role: str) -> None:
    """Put adapters into ``model`` and freeze the rest. A is drawn from the seed and ``role``, B is 0.

    Raises ``UserError`` where no module has one of the names in ``target_modules``.
    """
    from peft import inject_adapter_in_model  # noqa: PLC0415

    seed = SeedKey(config.seed, Purpose.WEIGHTS, f"lora {role}").integer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(_peft_config(config), model)
        except ValueError as error:
            raise UserError(f"learner.lora.target_modules = {config.target_modules!r}: {error}") from None


def without_adapters(model: nn.Module) -> Any:
    """Context in which the adapters of ``model`` add nothing: it is the frozen base."""
    from peft.helpers import rescale_adapter_scale  # noqa: PLC0415

    return rescale_adapter_scale(model, 0.0)


def merge(
    base: Iterable[tuple[str, Tensor]], adapter: dict[str, Tensor], config: LoraConfig
) -> dict[str, Tensor]:
    """Float32 weights of the merged model. ``adapter`` is named as in PEFT's files, ``base`` as in the model's."""
    merged = {name: tensor.to(torch.float32) for name, tensor in base}
    scale = config.alpha / config.rank
    for name, down in adapter.items():
        module, _, side = name.removeprefix(_PREFIX).rpartition(".lora_")
        if side != "A.weight":
            continue
        up = adapter[f"{_PREFIX}{module}.lora_B.weight"]
        weight = merged[f"{module}.weight"]
        # A new tensor: where the base is in float32, ``weight`` is the base itself.
        merged[f"{module}.weight"] = weight + scale * (up.to(torch.float32) @ down.to(torch.float32))
    return merged


def to_file_names(trained: dict[str, Tensor], root: str) -> dict[str, Tensor]:
    """Tensors of a trained module, whose language model is called ``root``, as PEFT's files name them."""
    return {
        _PREFIX + name.removeprefix(f"{root}.").replace(_NAME, "."): tensor
        for name, tensor in trained.items()
    }


def from_file_names(stored: dict[str, Tensor], root: str) -> dict[str, Tensor]:
    """The inverse of :func:`to_file_names`."""
    return {
        f"{root}." + name.removeprefix(_PREFIX).removesuffix(".weight") + f"{_NAME}weight": tensor
        for name, tensor in stored.items()
    }


def file_settings(config: LoraConfig, base: Path) -> dict[str, Any]:
    """Contents of ``adapter_config.json``."""
    settings: dict[str, Any] = _peft_config(config).to_dict()
    return {key: value for key, value in settings.items() if value is not None} | {
        "base_model_name_or_path": str(base)
    }


def continues(policy: Policy, config: LoraConfig | None) -> bool:
    """Whether the learner state of ``policy`` is one of a run with these adapters (None: without any)."""
    stored = policy.adapter_settings()
    if stored is None or config is None:
        return stored is None and config is None
    return _kind(stored) == _kind(file_settings(config, Path()))


def base_for(policy: Policy, config: LoraConfig) -> Path:
    """Directory of the model to freeze: that of the policy's own adapter, or the policy where it has another."""
    return frozen_base(policy) if continues(policy, config) else policy.model_directory


def frozen_base(policy: Policy) -> Path:
    """Directory of the model that the adapter of ``policy`` belongs to.

    A copy in its own folder or in that of its run's first policy (a fork), that first policy itself, or what the
    adapter names (a stage run alone). Raises ``UserError`` where it is gone.
    """
    settings = policy.adapter_settings() or {}
    named = Path(settings["base_model_name_or_path"])
    first = policy.directory.with_name(policy_name(0))
    candidates = [policy.model_directory / BASE]
    if (first / MANIFEST).exists():
        theirs = Policy.open(first).adapter_settings()
        forked = theirs is not None and _kind(theirs) == _kind(settings)
        candidates.append(first / BASE if forked else first)
    for directory in (*candidates, named):
        if (directory / MODEL).exists():
            return directory
    raise UserError(
        f"{policy.directory}: the frozen base of its adapter is gone, it was at {named}; "
        "put the model there, or start from the merged model with other learner.lora settings"
    )


def _kind(settings: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two adapters the same function of their tensors."""
    return tuple(settings[key] for key in ("r", "lora_alpha", "target_modules"))


def _peft_config(config: LoraConfig) -> Any:
    from peft import LoraConfig as PeftLoraConfig  # noqa: PLC0415

    return PeftLoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=config.target_modules,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
