"""A policy on disk: a Hugging Face model directory with the harness it was trained under and its learner state.

policy_0012/
    manifest.json              run, iteration, policy step, status, counters; stays when weights are pruned
    config.json, tokenizer…    as transformers writes them
    harness.json               prompt, parser settings and limits: part of the policy
    model.safetensors          float32 masters of the actor
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

MANIFEST = "manifest.json"
MODEL = "model.safetensors"
#: In a folder of their own: vLLM loads every safetensors file beside the model as weights of the model.
STATE_FILES = {
    "actor_moments": "learner/actor_optimizer.safetensors",
    "critic": "learner/critic.safetensors",
    "critic_moments": "learner/critic_optimizer.safetensors",
}
SCHEMA_VERSION = 1


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
    def counters(self) -> dict[str, int]:
        """Optimizer steps and iterations in a row without an update."""
        return dict(self.manifest["counters"])

    @cached_property
    def model_directory(self) -> Path:
        """Folder with the weights: an earlier one where iterations were skipped. Raises ``UserError`` if pruned."""
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
        return (holder / STATE_FILES["actor_moments"]).exists() or _untrained(holder)

    def tokenizer(self) -> Any:
        """Its tokenizer, as transformers loads it."""
        return load_tokenizer(self.model_directory)

    def harness(self) -> dict[str, Any]:
        """The harness it was trained under."""
        return dict(json.loads((self.model_directory / "harness.json").read_text()))

    def tensors(self, part: str) -> dict[str, Tensor] | None:
        """``weights``, ``actor_moments``, ``critic`` or ``critic_moments``; None where not stored."""
        file = self.model_directory / (MODEL if part == "weights" else STATE_FILES[part])
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
    directory = policy.directory.parent / "policy_0000"
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
    """imported, trained, skipped or stopped."""
    counters: dict[str, int]
    """Optimizer steps, iterations skipped in a row."""
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

    def write(self, directory: Path) -> None:
        """Write all files into the new folder ``directory``; the caller renames it into place."""
        directory.mkdir(parents=True)
        for file in self.model_files.iterdir():
            carried = file.suffix in {".json", ".jinja", ".model", ".txt"} and file.name not in {
                MANIFEST,
                "harness.json",
            }
            if carried and not file.name.endswith(".index.json"):
                shutil.copy2(file, directory / file.name)
        (directory / "harness.json").write_text(json.dumps(self.harness, indent=1, sort_keys=True))
        if self.weights is not None:
            save_file(self.weights, directory / MODEL, metadata={"format": "pt"})
        for part, tensors in self.parts.items():
            (directory / STATE_FILES[part]).parent.mkdir(exist_ok=True)
            save_file(tensors, directory / STATE_FILES[part])
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "run": self.run,
            "iteration": self.iteration,
            "policy_step": self.policy_step,
            "status": self.status,
            "counters": self.counters,
            "weights_in": self.weights_in,
        }
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))


def contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies that safetensors accepts: contiguous, sharing no storage."""
    return {
        name: tensor.detach().to(torch.float32).cpu().contiguous().clone() for name, tensor in tensors.items()
    }
