"""The project's actor step: ``Learner.update`` with one epoch of one mini-batch and no critic."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from update_batch import RaggedBatch
from update_shapes import load_model
from update_worker import serve

from starpo.config.algorithm import AlgorithmConfig
from starpo.config.learner import LearnerConfig, OptimizerConfig
from starpo.learning.batching import Sequences
from starpo.learning.learner import Learner
from starpo.store.policies import Policy
from starpo.store.policy_state import PolicyState, contiguous

#: All rows of a batch make one step.
ROWS = 4096


class Ours:
    """The optimizer's part of each update is measured beside the whole."""

    def __init__(self, model: str) -> None:
        torch.set_num_threads(1)
        optimizer = OptimizerConfig(learning_rate=1e-6)
        with tempfile.TemporaryDirectory() as scratch:
            self._learner = Learner(
                stored_policy(model, Path(scratch)),
                LearnerConfig(actor=optimizer, critic=optimizer, device="cpu", rows_per_step=ROWS),
                AlgorithmConfig(estimator="grpo", entropy_coefficient=0.005),
                temperature=1.0,
            )
        self._optimizer_seconds = 0.0
        actor = self._learner._actor
        whole_step = actor.step

        def timed_step() -> tuple[float, float]:
            start = time.process_time()
            result = whole_step()
            self._optimizer_seconds = time.process_time() - start
            return result

        actor.step = timed_step

    def splits(self, batch: RaggedBatch) -> list[None]:
        """``learner.micro_batch_tokens`` decides."""
        return [None]

    def step(self, batch: RaggedBatch, split: None) -> dict[str, Any]:
        """An update of the policy, its estimator, loss and metrics included."""
        result = self._learner.update(sequences(batch), seed=0, iteration=0)
        return {
            "optimizer_seconds": self._optimizer_seconds,
            "padding_share": result.metrics["padding_share"],
            "shared_token_share": result.metrics["shared_token_share"],
        }


def stored_policy(model: str, scratch: Path) -> Policy:
    """A model as a policy that no optimizer step was done on."""
    loaded, directory = load_model(model), scratch / "policy_0000"
    loaded.config.save_pretrained(scratch / "files")
    PolicyState(
        run="benchmark",
        iteration=0,
        policy_step=0,
        status="imported",
        counters={"actor_steps": 0, "critic_steps": 0, "skipped": 0},
        model_files=scratch / "files",
        harness={},
        weights=contiguous(dict(loaded.named_parameters())),
        weights_in=directory.name,
    ).write(directory)
    return Policy.open(directory)


def sequences(batch: RaggedBatch) -> Sequences:
    """The batch as the update node would hand it over."""
    turn_mask = np.arange(batch.turns.max())[None] < batch.turns[:, None]
    last = np.arange(turn_mask.shape[1])[None] == batch.turns[:, None] - 1
    return Sequences(
        keys=list(zip(batch.groups.tolist(), range(len(batch.groups)), strict=True)),
        token_ids=torch.from_numpy(batch.token_ids),
        lengths=batch.lengths,
        mask=torch.from_numpy(batch.mask),
        old_logp=torch.from_numpy(batch.old_logp),
        turn_index=torch.from_numpy(batch.turn_index),
        turn_rewards=torch.from_numpy(np.where(last, batch.rewards[:, None], 0).astype(np.float32)),
        turn_mask=torch.from_numpy(turn_mask),
        group_ids=torch.from_numpy(batch.groups),
        anchors=torch.zeros(turn_mask.shape, dtype=torch.int64),
        environments=["benchmark"] * len(batch.groups),
        starts=[[0]] * len(batch.groups),
    )


if __name__ == "__main__":
    serve(Ours)
