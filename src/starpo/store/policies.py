"""A policy on disk: a Hugging Face model directory with the harness it was trained under and its learner state.

policy_0012/
    manifest.json              run, iteration, policy step, status, counters; stays when weights are pruned
    config.json, tokenizer…    as transformers writes them
    harness.json               prompt, parser settings and limits: part of the policy
    model.safetensors          float32 masters of the actor; with LoRA base and adapter, merged
    adapter/                   with LoRA: the adapter alone, in PEFT's format
    base/                      in the first policy of a fork with LoRA: the model that the adapter belongs to
    learner/                   actor_optimizer.safetensors, critic.safetensors, critic_optimizer.safetensors
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from starpo.errors import UserError
from starpo.store.layout import policy_name

MANIFEST = "manifest.json"
MODEL = "model.safetensors"
#: In a folder of their own: vLLM loads every safetensors file beside the model as weights of the model.
STATE_FILES = {
    "actor_moments": "learner/actor_optimizer.safetensors",
    "critic": "learner/critic.safetensors",
    "critic_moments": "learner/critic_optimizer.safetensors",
}
#: All tensor files of a policy by the names of their parts.
PARTS = {"weights": MODEL, "adapter": "adapter/adapter_model.safetensors", **STATE_FILES}
ADAPTER_SETTINGS = "adapter/adapter_config.json"
#: Folder of a frozen base.
BASE = "base"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in the terms of PEFT's files."""

    settings: dict[str, Any]
    """Contents of adapter_config.json."""
    tensors: dict[str, Tensor]
    """Float32, by the names of adapter_model.safetensors."""


@dataclass(frozen=True)
class Policy:
    """A stored policy; weights stay on disk until someone asks."""

    directory: Path
    """Its folder."""
    manifest: dict[str, Any]
    """Contents of manifest.json."""

    @classmethod
    def open(cls, directory: Path) -> Policy:
        """Raises ``UserError`` where there is no readable policy."""
        file = directory / MANIFEST
        try:
            manifest = json.loads(file.read_text())
        except FileNotFoundError:
            raise UserError(f"{directory}: no policy here ({MANIFEST} is missing)") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{file}: unreadable ({error}); remove the folder and run again") from None
        if manifest.get("schema_version") != SCHEMA_VERSION:
            raise UserError(
                f"{file}: schema_version {manifest.get('schema_version')!r}, expected {SCHEMA_VERSION}"
            )
        return cls(directory, manifest)

    @property
    def iteration(self) -> int:
        """Iterations behind it: the iteration it will roll out next."""
        return int(self.manifest["iteration"])

    @property
    def step(self) -> int:
        """Updates behind it; smaller than ``iteration`` after skipped ones."""
        return int(self.manifest["policy_step"])

    @property
    def identity(self) -> str:
        """Names the weights: ``run/step``."""
        return f"{self.manifest['run']}/{self.step}"

    @property
    def counters(self) -> dict[str, float]:
        """Optimizer steps, iterations in a row without an update, an adaptive KL coefficient."""
        return dict(self.manifest["counters"])

    @property
    def monitor(self) -> dict[str, Any]:
        """What the Echo Trap monitor has seen up to it; empty at the start of a run."""
        return dict(self.manifest.get("monitor", {}))

    @cached_property
    def model_directory(self) -> Path:
        """Folder with the weights: an earlier one where iterations were skipped. Raises ``UserError`` if pruned."""
        if (self.directory / MODEL).exists():  # also of a copy under another name
            return self.directory
        holder = self.directory.parent / self.manifest["weights_in"]
        if not (holder / MODEL).exists():
            raise UserError(
                f"{holder / MODEL}: weights are not stored (pruned or between checkpoints); "
                "choose another step or raise run.keep_last"
            )
        return holder

    @property
    def is_complete(self) -> bool:
        """Whether learning can go on from it."""
        holder = self.directory.parent / self.manifest["weights_in"]
        if not (holder / MODEL).exists():
            return False
        # An adapter is written with its model and pruned with it.
        return (holder / STATE_FILES["actor_moments"]).exists() or _untrained(holder)

    def tokenizer(self) -> Any:
        """Its tokenizer, as transformers loads it."""
        return load_tokenizer(self.directory)

    def harness(self) -> dict[str, Any]:
        """The harness it was trained under."""
        return dict(json.loads((self.directory / "harness.json").read_text()))

    def adapter_settings(self) -> dict[str, Any] | None:
        """PEFT's description of its adapter; None where it has none."""
        file = self.model_directory / ADAPTER_SETTINGS
        try:
            return dict(json.loads(file.read_text())) if file.exists() else None
        except ValueError as error:
            raise UserError(f"{file}: unreadable ({error}); remove {self.directory} and run again") from None

    def adapter(self) -> Adapter | None:
        """Its LoRA adapter; None where it has none."""
        settings, tensors = self.adapter_settings(), self.tensors("adapter")
        return None if settings is None or tensors is None else Adapter(settings, tensors)

    def tensors(self, part: str) -> dict[str, Tensor] | None:
        """One of ``PARTS``; None where it is not stored."""
        file = self.model_directory / PARTS[part]
        if not file.exists():
            return None
        try:
            return dict(load_file(file))
        except Exception as error:  # safetensors raises its own untyped errors
            raise UserError(
                f"{file}: unreadable checkpoint ({error}); remove {self.directory} to go on from an earlier one"
            ) from None


def _untrained(directory: Path) -> bool:
    """Whether no optimizer step was done yet, so that weights alone are the whole state."""
    policy = Policy.open(directory)
    return policy.manifest["status"] == "imported" and not policy.counters["actor_steps"]


def first_policy(policy: Policy) -> Policy:
    """The policy that its run started from, also after a resume: what a KL penalty refers to.

    A stage run alone has no first policy of its own; then it is ``policy`` itself.
    """
    directory = policy.directory.with_name(policy_name(0))
    return Policy.open(directory) if (directory / MANIFEST).exists() else policy


def load_tokenizer(directory: Path) -> Any:
    """A tokenizer from a model directory, offline. Raises ``UserError`` where it cannot be read."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    try:
        return AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # transformers raises many kinds
        raise UserError(f"{directory}: no readable tokenizer ({error})") from None


@dataclass(frozen=True)
class PolicyState:
    """A policy about to be stored."""

    run: str
    """Name of the run."""
    iteration: int
    """Iterations behind it."""
    policy_step: int
    """Updates behind it."""
    status: str
    """imported, trained, skipped, rolled_back or stopped."""
    counters: dict[str, float]
    """Optimizer steps, iterations skipped in a row, an adaptive KL coefficient."""
    model_files: Path
    """Directory whose config, tokenizer and template files are copied."""
    harness: dict[str, Any]
    """Prompt, parser settings and limits."""
    weights: dict[str, Tensor] | None = None
    """Float32 masters of the actor; None writes a manifest only."""
    weights_in: str | None = None
    """Name of the sibling folder whose weights it repeats; None: its own."""
    parts: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """``actor_moments``, ``critic``, ``critic_moments``."""
    adapter: Adapter | None = None
    """The adapter that ``weights`` are merged with, where only that is trained."""
    base: Path | None = None
    """Directory of the adapter's frozen base, to be copied; None where the run's first policy is that base."""
    monitor: dict[str, Any] = field(default_factory=dict)
    """What the Echo Trap monitor has seen, JSON-able."""

    def write(self, directory: Path) -> None:
        """Write all files into the new folder ``directory``; the caller renames it into place."""
        directory.mkdir(parents=True)
        _copy_model_files(self.model_files, directory)
        (directory / "harness.json").write_text(json.dumps(self.harness, indent=1, sort_keys=True))
        if self.weights is not None:
            save_file(self.weights, directory / MODEL, metadata={"format": "pt"})
        parts = dict(self.parts)
        if self.adapter is not None:
            parts["adapter"] = self.adapter.tensors
        for part, tensors in parts.items():
            (directory / PARTS[part]).parent.mkdir(exist_ok=True)
            save_file(
                tensors, directory / PARTS[part], metadata={"format": "pt"} if part == "adapter" else None
            )
        if self.adapter is not None:
            settings = json.dumps(self.adapter.settings, indent=1, sort_keys=True)
            (directory / ADAPTER_SETTINGS).write_text(settings)
        if self.base is not None:
            _copy_model_files(self.base, directory / BASE)
            shutil.copy2(self.base / MODEL, directory / BASE / MODEL)
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "run": self.run,
            "iteration": self.iteration,
            "policy_step": self.policy_step,
            "status": self.status,
            "counters": self.counters,
            "weights_in": self.weights_in,
            "monitor": self.monitor,
        }
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))


def _copy_model_files(source: Path, target: Path) -> None:
    """Config, tokenizer and template, without weights and without what belongs to one policy."""
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        model_file = file.suffix in {".json", ".jinja", ".model", ".txt"} and not file.name.endswith(
            ".index.json"
        )
        if model_file and file.name not in {MANIFEST, "harness.json"}:
            shutil.copy2(file, target / file.name)


def contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies that safetensors accepts: contiguous, sharing no storage."""
    return {
        name: tensor.detach().to(torch.float32).cpu().contiguous().clone() for name, tensor in tensors.items()
    }
