"""Run by ``test_memory.py`` in a process of its own: peak memory of one update, beside its estimate.

Prints one JSON object. Usage: ``python learner_peak.py FOLDER CHECKPOINTING``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders import PROJECT, algorithm, learner_config, store
from process_memory import peak_bytes, resident_bytes
from transformers import LlamaConfig, LlamaForCausalLM

from starpo.app.config_loader import ConfigLoader
from starpo.config.parameters import parse_parameters
from starpo.learning.batching import Sequences
from starpo.learning.learner import Learner
from starpo.learning.memory import estimate_memory
from starpo.learning.model_shape import ModelShape
from starpo.settings import CONFIG_LOADER_ARGS
from starpo.store.policies import Policy

ROWS, LENGTH, TOKENS = 8, 256, 2048


SHAPE = LlamaConfig(
    vocab_size=4096,
    hidden_size=512,
    intermediate_size=1536,
    num_hidden_layers=6,
    num_attention_heads=8,
    num_key_value_heads=8,
    tie_word_embeddings=False,
)


def random_policy(folder: Path, shape: LlamaConfig) -> Policy:
    """With random weights, stored in ``folder``."""
    model = LlamaForCausalLM(shape)
    model.config.save_pretrained(folder)
    return store(folder, model_files=folder, weights=model.state_dict())


def random_batch(rows: int, length: int) -> Sequences:
    """Trajectories of one length in groups of four, sampled but for their first token."""
    draw = torch.Generator().manual_seed(0)
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[:, 0] = False
    return Sequences(
        keys=[(row // 4, row % 4) for row in range(rows)],
        token_ids=torch.randint(0, 4096, (rows, length), generator=draw),
        lengths=np.full(rows, length),
        mask=mask,
        old_logp=torch.full((rows, length), -8.3),
        turn_index=torch.zeros(rows, length, dtype=torch.int64),
        turn_rewards=torch.rand(rows, 1, generator=draw),
        turn_mask=torch.ones(rows, 1, dtype=torch.bool),
        group_ids=torch.arange(rows) // 4,
        anchors=torch.zeros(rows, 1, dtype=torch.int64),
        environments=["bandit"] * rows,
        starts=[[0]] * rows,
    )


def main(folder: Path, checkpointing: bool) -> dict[str, float]:
    policy, batch = random_policy(folder, SHAPE), random_batch(ROWS, LENGTH)
    learner = learner_config(
        micro_batch_tokens=TOKENS, rows_per_step=ROWS, gradient_checkpointing=checkpointing
    )
    import deepspeed  # noqa: F401 - its share of the process is not the learner's

    before = resident_bytes()
    actor = Learner(policy, learner, algorithm(), temperature=1.0)
    actor.update(batch, seed=0, iteration=0)
    kept = (actor.weights(), actor.parts())
    peak = peak_bytes()
    assert kept
    loader = ConfigLoader(conf_source=str(PROJECT / "conf"), env="smoke", **CONFIG_LOADER_ARGS)
    raw = dict(loader["parameters"])
    raw.pop("presets")
    parameters = parse_parameters(raw | {"learner": learner.model_dump()})
    found = estimate_memory(ModelShape.of(SHAPE), parameters, on_gpu=False, device_memory=0, host_memory=0)
    mine = sum(i.device for i in found.items if not i.name.startswith(("engine", "process")))
    return {"estimated": mine, "measured": peak - before, "before": before}


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(Path(sys.argv[1]), bool(int(sys.argv[2])))))  # noqa: T201
