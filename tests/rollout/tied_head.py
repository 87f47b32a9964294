"""Run by ``test_tied_head.py`` in a process of its own: new weights in a vLLM engine with tied embeddings.

Prints one JSON object. Usage: ``python tied_head.py MODEL_DIRECTORY``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from starpo.config.rollout import EngineConfig
from starpo.rollout import vllm_internals
from starpo.rollout.sync import SyncError, largest_difference, prove_sync
from starpo.rollout.transformers_engine import TransformersEngine
from starpo.rollout.vllm_engine import VLLMEngine, stored_weights

TOLERANCE = 1e-3
PROBE = [list(range(3, 40)), [5, 9, 5, 9, 200, 201]]


def perturbed(directory: Path, *, seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=draw)
        for name, tensor in stored_weights(directory)
    }


def main(directory: Path) -> dict[str, object]:
    config = EngineConfig(device="cpu", max_sequences=8)
    engine = VLLMEngine(directory, config, context=128, stop_ids=(2,), identity="tied/0")
    reference = TransformersEngine(directory, config, stop_ids=(2,), identity="tied/0")
    at_start = largest_difference(engine, reference, PROBE)
    before = engine.score(PROBE)

    first = perturbed(directory, seed=1)
    engine.load(first.items(), "tied/1")
    reference.load(first.items(), "tied/1")
    repacked = prove_sync(engine, reference, PROBE, TOLERANCE)
    moved = max(
        abs(a - b)
        for old, new in zip(before, engine.score(PROBE), strict=True)
        for a, b in zip(old, new, strict=True)
    )

    vllm_internals.repack_tied_head = lambda model: None  # what happened before it was found
    second = perturbed(directory, seed=2)
    engine.load(second.items(), "tied/2")
    reference.load(second.items(), "tied/2")
    stale = largest_difference(engine, reference, PROBE)
    try:
        prove_sync(engine, reference, PROBE, TOLERANCE)
        message = ""
    except SyncError as error:
        message = str(error)
    return {"at_start": at_start, "moved": moved, "repacked": repacked, "stale": stale, "message": message}


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(Path(sys.argv[1]))))  # noqa: T201
