"""Run by ``test_memory.py`` in a process of its own: peak memory of one update, beside its estimate.

Prints one JSON object. Usage: ``python learner_peak.py FOLDER CHECKPOINTING``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders import PROJECT, algorithm, learner_config, store
from process_memory import peak_bytes, resident_bytes
from transformers import LlamaConfig, LlamaForCausalLM

from starpo.app.config_loader import ConfigLoader
from starpo.config.parameters import parse_parameters
from starpo.learning.learner import Learner
from starpo.learning.memory import estimate_memory
from starpo.learning.model_shape import ModelShape
from starpo.settings import CONFIG_LOADER_ARGS

ROWS, LENGTH, TOKENS = 8, 256, 2048


def main(folder: Path, checkpointing: bool) -> dict[str, float]:
    import numpy as np

    from starpo.learning.batching import Sequences

    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    model.config.save_pretrained(folder)
    policy = store(folder, model_files=folder, weights=model.state_dict())
    del model
    draw = torch.Generator().manual_seed(0)
    mask = torch.ones(ROWS, LENGTH, dtype=torch.bool)
    mask[:, 0] = False
    turn = torch.zeros(ROWS, LENGTH, dtype=torch.int64)
    batch = Sequences(
        keys=[(row // 4, row % 4) for row in range(ROWS)],
        token_ids=torch.randint(0, 4096, (ROWS, LENGTH), generator=draw),
        lengths=np.full(ROWS, LENGTH),
        mask=mask,
        old_logp=torch.full((ROWS, LENGTH), -8.3),
        turn_index=turn,
        turn_rewards=torch.rand(ROWS, 1, generator=draw),
        turn_mask=torch.ones(ROWS, 1, dtype=torch.bool),
        group_ids=torch.arange(ROWS) // 4,
        anchors=torch.zeros(ROWS, 1, dtype=torch.int64),
        environments=["bandit"] * ROWS,
        starts=[[0]] * ROWS,
    )
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
    found = estimate_memory(ModelShape.of(config), parameters, on_gpu=False, device_memory=0, host_memory=0)
    mine = sum(i.device for i in found.items if not i.name.startswith(("engine", "process")))
    return {"estimated": mine, "measured": peak - before, "before": before}


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(Path(sys.argv[1]), bool(int(sys.argv[2])))))  # noqa: T201
