"""TRL's GRPO loss step: ``GRPOTrainer.compute_loss`` on the batch as its tool loop would hand it over.

Prompts padded on the left, completions on the right; a completion is everything after the first prompt, with
``tool_mask`` 0 on what the environment said. Runs in an environment of its own (requirements-trl.txt).
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from update_batch import RaggedBatch
from update_shapes import load_model
from update_worker import serve

#: per_device_train_batch_size; TRL pads each part to the longest of the whole generation batch.
SPLITS = (8, 1 << 30)


class TRL:
    """Loss and settings as ours: token mean, clip 0.2 / 0.28, entropy bonus, no KL, no gradient checkpointing."""

    def __init__(self, model: str) -> None:
        torch.set_num_threads(1)
        words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
        with tempfile.TemporaryDirectory() as scratch:
            self._trainer = GRPOTrainer(
                model=load_model(model),
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=GRPOConfig(
                    output_dir=scratch,
                    use_cpu=True,
                    bf16=False,
                    gradient_checkpointing=False,
                    loss_type="bnpo",
                    beta=0.0,
                    epsilon=0.2,
                    epsilon_high=0.28,
                    entropy_coef=0.005,
                    report_to=[],
                ),
                train_dataset=Dataset.from_dict({"prompt": ["-"] * 8}),
                processing_class=PreTrainedTokenizerFast(
                    tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
                ),
            )
        self._trainer.model.train()

    def splits(self, batch: RaggedBatch) -> list[int]:
        """Trajectories of one loss."""
        return sorted({min(len(batch.lengths), rows) for rows in SPLITS})

    def step(self, batch: RaggedBatch, split: int) -> dict[str, Any]:
        """One gradient, accumulated over the parts."""
        trainer = self._trainer
        trainer.model.zero_grad()
        inputs = as_inputs(batch)
        parts = range(0, len(batch.lengths), split)
        trainer.current_gradient_accumulation_steps = len(parts)
        for start in parts:
            part = {name: tensor[start : start + split] for name, tensor in inputs.items()}
            trainer.compute_loss(trainer.model, part).backward()
        return {}


def as_inputs(batch: RaggedBatch) -> dict[str, torch.Tensor]:
    """Prompts, completions, masks and advantages as ``_generate_and_score_completions`` returns them."""
    rows = len(batch.lengths)
    longest = (batch.prompt_lengths.max(), (batch.lengths - batch.prompt_lengths).max())
    prompt, completion = (np.zeros((rows, width), dtype=np.int64) for width in longest)
    prompt_mask, completion_mask, tool_mask = (np.zeros_like(ids) for ids in (prompt, completion, completion))
    old = np.zeros(completion.shape, dtype=np.float32)
    for row, (start, end) in enumerate(zip(batch.prompt_lengths, batch.lengths, strict=True)):
        prompt[row, longest[0] - start :], prompt_mask[row, longest[0] - start :] = (
            batch.token_ids[row, :start],
            1,
        )
        span = slice(0, end - start)
        completion[row, span], completion_mask[row, span] = batch.token_ids[row, start:end], 1
        tool_mask[row, span] = batch.mask[row, start:end]
        old[row, span] = batch.old_logp[row, start:end]
    arrays = {
        "prompt_ids": prompt,
        "prompt_mask": prompt_mask,
        "completion_ids": completion,
        "completion_mask": completion_mask,
        "tool_mask": tool_mask,
        "old_per_token_logps": old,
        "advantages": batch.rewards - batch.rewards.mean(),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


if __name__ == "__main__":
    serve(TRL)
