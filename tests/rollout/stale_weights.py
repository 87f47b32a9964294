"""Run by ``test_stale_weights.py`` in a process of its own: a vLLM engine that is one update behind.

Prints one JSON object. Usage: ``python stale_weights.py MODEL_DIRECTORY DTYPE``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from starpo.config.rollout import EngineConfig
from starpo.rollout import vllm_internals
from starpo.rollout.sync import SyncError, largest_difference, prove_sync, prove_weights
from starpo.rollout.transformers_engine import TransformersEngine
from starpo.rollout.vllm_engine import VLLMEngine, stored_weights

PROBE = [list(range(3, 40)), [5, 9, 5, 9, 200, 201]]
#: AdamW's first steps move every entry by about the learning rate, whatever its gradient.
RATE = 1e-6


def updated(weights: dict[str, torch.Tensor], *, seed: int) -> dict[str, torch.Tensor]:
    """float32 masters after one step of AdamW."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: tensor + RATE * (2.0 * torch.randint(0, 2, tensor.shape, generator=draw) - 1)
        for name, tensor in weights.items()
    }


def far_from(weights: dict[str, torch.Tensor], *, seed: int) -> dict[str, torch.Tensor]:
    """Weights of another distribution over tokens."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=draw) for name, tensor in weights.items()
    }


def refusal(proof: Callable[[], object]) -> str:
    try:
        proof()
    except SyncError as error:
        return str(error)
    return ""


def main(directory: Path, dtype: str) -> dict[str, object]:
    config = EngineConfig(device="cpu", max_sequences=8, dtype=dtype)
    engine = VLLMEngine(directory, config, context=128, stop_ids=(2,), identity="stale/0")
    reference = TransformersEngine(directory, EngineConfig(device="cpu"), stop_ids=(2,), identity="stale/0")
    old = dict(stored_weights(directory))
    new = updated(old, seed=1)
    at_start = engine.held(old.items())
    result: dict[str, object] = {
        "at_start": [*at_start.differing, *at_start.unproved],
        "at_start_log_probs": largest_difference(engine, reference, PROBE),
    }
    reference.load(new.items(), "stale/1")
    # The engine still holds the old weights.
    result["stale_log_probs"] = prove_sync(engine, reference, PROBE, 0.5)
    result["stale"] = list(engine.held(new.items()).differing)
    result["stale_message"] = refusal(lambda: prove_weights(engine, new.items()))
    engine.load(new.items(), "stale/1")
    after = engine.held(new.items())
    result["loaded"] = [*after.differing, *after.unproved]

    newer = updated(new, seed=2)
    result["single"] = {}
    for name in old:
        engine.load({**newer, name: new[name]}.items(), "stale/2")
        result["single"][name] = list(engine.held(newer.items()).differing)

    far, farther = far_from(newer, seed=3), far_from(newer, seed=4)
    reference.load(far.items(), "stale/3")
    result["moved"] = largest_difference(engine, reference, PROBE)
    engine.load(far.items(), "stale/3")
    result["far_log_probs"] = largest_difference(engine, reference, PROBE)
    vllm_internals.repack_tied_head = lambda model: None
    for each in (engine, reference):
        each.load(farther.items(), "stale/4")
    result["without_repacking"] = list(engine.held(farther.items()).differing)
    result["without_repacking_message"] = refusal(lambda: prove_sync(engine, reference, PROBE, 0.1))
    result["missing"] = list(
        engine.held([item for item in farther.items() if "norm" not in item[0]]).unproved
    )
    return result


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(Path(sys.argv[1]), sys.argv[2])))  # noqa: T201
