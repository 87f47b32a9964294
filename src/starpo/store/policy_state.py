"""A policy about to be stored: the files of its folder, written whole."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starpo.store.checksums import checksum

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
HARNESS = "harness.json"
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
SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in the terms of PEFT's files."""

    settings: dict[str, Any]
    """Contents of adapter_config.json."""
    tensors: dict[str, Tensor]
    """Float32, by the names of adapter_model.safetensors."""


@dataclass(frozen=True)
class PolicyState:
    """What a policy's folder will hold; made by the transitions of :class:`~starpo.store.policies.Policy`."""

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

    @property
    def identity(self) -> str:
        """Names the weights: ``run/step``."""
        return f"{self.run}/{self.policy_step}"

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        held = [self.weights or {}, *self.parts.values(), self.adapter.tensors if self.adapter else {}]
        return sum(tensor.nbytes for tensors in held for tensor in tensors.values())

    def write(self, directory: Path) -> None:
        """Write all files into the new folder ``directory``; the caller renames it into place."""
        from safetensors.torch import save_file  # noqa: PLC0415 - loads torch

        directory.mkdir(parents=True)
        _copy_model_files(self.model_files, directory)
        (directory / HARNESS).write_text(json.dumps(self.harness, indent=1, sort_keys=True))
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
            "files": {file.relative_to(directory).as_posix(): checksum(file) for file in _files(directory)},
        }
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))


def _files(directory: Path) -> list[Path]:
    return sorted(file for file in directory.rglob("*") if file.is_file())


def _copy_model_files(source: Path, target: Path) -> None:
    """Config, tokenizer and template, without weights and without what belongs to one policy."""
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        model_file = file.suffix in {".json", ".jinja", ".model", ".txt"} and not file.name.endswith(
            ".index.json"
        )
        if model_file and file.name not in {MANIFEST, HARNESS}:
            shutil.copy2(file, target / file.name)


def contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies that safetensors accepts: contiguous, sharing no storage."""
    import torch  # noqa: PLC0415

    return {
        name: tensor.detach().to(torch.float32).cpu().contiguous().clone() for name, tensor in tensors.items()
    }
