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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from starpo.errors import UserError
from starpo.store.checksums import Fault, checksum, damaged
from starpo.store.layout import policy_name
from starpo.store.policy_state import (
    ADAPTER_SETTINGS,
    HARNESS,
    MANIFEST,
    MODEL,
    PARTS,
    SCHEMA_VERSION,
    STATE_FILES,
    Adapter,
    PolicyState,
)

if TYPE_CHECKING:
    from torch import Tensor


_PRUNED = set(PARTS.values())


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
            raise UserError(
                f"{file}: unreadable ({error}); `starpo runs verify {directory.parent.name}` says what can be made "
                "again"
            ) from None
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
        written = _written(holder)
        if not all((holder / name).exists() for name in written if name in _PRUNED) or MODEL not in written:
            return False
        return STATE_FILES["actor_moments"] in written or _untrained(holder)

    def tokenizer(self) -> Any:
        """Its tokenizer, as transformers loads it."""
        return load_tokenizer(self.directory)

    def harness(self) -> dict[str, Any]:
        """The harness it was trained under."""
        check_file(self.directory, HARNESS)
        return dict(json.loads((self.directory / HARNESS).read_text()))

    def check_model(self) -> None:
        """Raise ``UserError`` where a file that an engine loads is not what was written."""
        for name in _written(self.model_directory):
            if name not in STATE_FILES.values():
                check_file(self.model_directory, name)

    def adapter_settings(self) -> dict[str, Any] | None:
        """PEFT's description of its adapter; None where it has none."""
        file = self.model_directory / ADAPTER_SETTINGS
        if not file.exists():
            return None
        check_file(self.model_directory, ADAPTER_SETTINGS)
        return dict(json.loads(file.read_text()))

    def adapter(self) -> Adapter | None:
        """Its LoRA adapter; None where it has none."""
        settings, tensors = self.adapter_settings(), self.tensors("adapter")
        return None if settings is None or tensors is None else Adapter(settings, tensors)

    def tensors(self, part: str) -> dict[str, Tensor] | None:
        """One of ``PARTS``; None where it is not stored."""
        file = self.model_directory / PARTS[part]
        if not file.exists():
            return None
        check_file(self.model_directory, PARTS[part])
        from safetensors.torch import load_file  # noqa: PLC0415 - loads torch

        try:
            return dict(load_file(file))
        except Exception as error:  # safetensors raises its own untyped errors
            raise UserError(f"{file}: unreadable checkpoint ({error})") from None

    def trained(
        self,
        *,
        weights: dict[str, Tensor],
        parts: dict[str, dict[str, Tensor]],
        adapter: Adapter | None,
        counters: dict[str, float],
        monitor: dict[str, Any],
    ) -> PolicyState:
        """The next policy, after an update: with weights of its own."""
        return PolicyState(
            run=self.manifest["run"],
            iteration=self.iteration + 1,
            policy_step=self.step + 1,
            status="trained",
            counters=counters | {"skipped": 0},
            model_files=self.directory,
            harness=self.harness(),
            weights=weights,
            weights_in=policy_name(self.iteration + 1),
            parts=parts,
            adapter=adapter,
            monitor=monitor,
        )

    def repeated(self, status: Literal["skipped", "stopped"], monitor: dict[str, Any]) -> PolicyState:
        """The next iteration's policy where nothing was learned: a manifest that names the weights it repeats."""
        return PolicyState(
            run=self.manifest["run"],
            iteration=self.iteration + 1,
            policy_step=self.step,
            status=status,
            counters=self.counters | {"skipped": self.counters["skipped"] + 1},
            model_files=self.directory,
            harness=self.harness(),
            weights_in=self.manifest["weights_in"],
            monitor=monitor,
        )

    def rolled_back(self, to: Policy, monitor: dict[str, Any]) -> PolicyState:
        """The next iteration's policy with the weights and the learner state of the earlier one ``to``."""
        return PolicyState(
            run=self.manifest["run"],
            iteration=self.iteration + 1,
            # A number of its own: what is learned from here on has never been there.
            policy_step=self.step + 1,
            status="rolled_back",
            counters=to.counters | {"skipped": 0},
            model_files=self.directory,
            harness=self.harness(),
            weights_in=to.manifest["weights_in"],
            monitor=monitor,
        )

    def imported(self, run: str, base: Path | None) -> PolicyState:
        """The first policy of ``run``: a copy with the learner state, where it has one (a fork).

        Args:
            run: name of the new run.
            base: directory of the frozen base of its adapter, to be copied, for a fork's source may be removed later.
        """
        parts = {part: self.tensors(part) for part in STATE_FILES}
        return PolicyState(
            run=run,
            iteration=0,
            policy_step=0,
            status="imported",
            counters=self.counters | {"skipped": 0},
            model_files=self.model_directory,
            harness=self.harness(),
            weights=self.tensors("weights"),
            weights_in=policy_name(0),
            parts={part: tensors for part, tensors in parts.items() if tensors is not None},
            adapter=self.adapter(),
            base=base,
        )


def _written(directory: Path) -> dict[str, str]:
    """Checksums of the files beside a policy's manifest, as they were written; none where there is no manifest."""
    file = directory / MANIFEST
    return dict(Policy.open(directory).manifest["files"]) if file.exists() else {}


def check_file(directory: Path, name: str) -> None:
    """Raise ``UserError`` where a file of a policy's folder is not what was written."""
    expected = _written(directory).get(name)
    if expected is not None and checksum(directory / name) != expected:
        raise UserError(damaged(directory / name, directory.parent.name))


def faulty_files(directory: Path) -> dict[str, Fault]:
    """Files of a policy's folder that are not what was written; weights and learner state may have been pruned."""
    found: dict[str, Fault] = {}
    for name, expected in _written(directory).items():
        file = directory / name
        if not file.is_file():
            if name not in _PRUNED:
                found[name] = "missing"
        elif checksum(file) != expected:
            found[name] = "damaged"
    return found


def new_policy(
    run: str, model_files: Path, harness: dict[str, Any], weights: dict[str, Tensor]
) -> PolicyState:
    """A policy that no run has trained yet.

    Args:
        run: folder of the base policy.
        model_files: directory with its config, tokenizer and template.
        harness: prompt, parser settings and limits.
        weights: float32, by name.
    """
    return PolicyState(
        run=run,
        iteration=0,
        policy_step=0,
        status="imported",
        counters={"actor_steps": 0, "critic_steps": 0, "skipped": 0},
        model_files=model_files,
        harness=harness,
        weights=weights,
        weights_in=policy_name(0),
    )


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
