"""The limit: the network's forward pass, cross-entropy and backward pass on trajectories of equal length.

As many trajectories and tokens as the batch has, so without any padding, and logits for as many tokens as the batch
has sampled ones. No mask, no ratios, no metrics, no optimizer.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from update_batch import RaggedBatch
from update_shapes import load_model
from update_worker import serve

#: Tokens of one pass: a CPU may be faster on less than everything.
SPLITS = (2048, 1 << 30)


class Bare:
    """transformers' own model with its default attention, torch's scaled dot product."""

    def __init__(self, model: str) -> None:
        torch.set_num_threads(1)
        self._model = load_model(model)
        self._model.train()

    def splits(self, batch: RaggedBatch) -> list[int]:
        """Trajectories of one pass."""
        length = round(batch.lengths.mean())
        return sorted({min(len(batch.lengths), max(1, tokens // length)) for tokens in SPLITS})

    def step(self, batch: RaggedBatch, split: int) -> dict[str, Any]:
        """One gradient of the mean cross-entropy."""
        self._model.zero_grad()
        rows, length = len(batch.lengths), round(batch.lengths.mean())
        ids = torch.from_numpy(batch.token_ids.ravel()[: rows * length]).view(rows, length)
        every = max(1, round(rows * length / batch.mask.sum()))
        for part in ids.split(split):
            hidden = self._model.get_decoder()(input_ids=part, use_cache=False).last_hidden_state
            chosen = hidden[:, :-1].flatten(0, 1)[::every]
            logits = self._model.get_output_embeddings()(chosen)
            labels = part[:, 1:].flatten()[::every]
            loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / int(batch.mask.sum())
            loss.backward()
        return {}


if __name__ == "__main__":
    serve(Bare)
