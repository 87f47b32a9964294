"""The reference engine: Hugging Face transformers, a cached loop that reads like the definition of sampling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from starpo.config.rollout import EngineConfig
from starpo.rollout.engine import Completion, Held, Sampling
from starpo.rollout.vllm_engine import on_gpu, stored_weights


class TransformersEngine:
    """Lock-step batches; for tests, for checking vLLM and for platforms without it."""

    def __init__(self, model: Path, config: EngineConfig, *, stop_ids: Sequence[int], identity: str) -> None:
        from transformers import AutoModelForCausalLM  # noqa: PLC0415

        self._device = torch.device("cuda" if on_gpu(config) else "cpu")
        dtype = getattr(torch, config.dtype)
        loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
        self._model = loaded.to(self._device).eval()
        self._stop_ids = set(stop_ids)
        self._pending: list[tuple[int, list[int], Sampling]] = []
        self._batch = config.max_sequences
        self.serves = identity

    def submit(self, request: int, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        self._pending.append((request, list(prompt_ids), sampling))

    @torch.inference_mode()
    def poll(self) -> list[Completion]:
        batch, self._pending = self._pending[: self._batch], self._pending[self._batch :]
        if not batch:
            return []
        width = max(len(ids) for _, ids, _ in batch)
        tokens = torch.tensor([[0] * (width - len(ids)) + ids for _, ids, _ in batch], device=self._device)
        mask = torch.tensor(
            [[0] * (width - len(ids)) + [1] * len(ids) for _, ids, _ in batch], device=self._device
        )
        draws = [torch.Generator().manual_seed(sampling.seed) for _, _, sampling in batch]
        sampled: list[list[int]] = [[] for _ in batch]
        logprobs: list[list[float]] = [[] for _ in batch]
        alive = set(range(len(batch)))
        stopped: set[int] = set()
        cache = None
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        while alive:
            out = self._model(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            cache = out.past_key_values
            following = torch.zeros(len(batch), 1, dtype=torch.long, device=self._device)
            for row in sorted(alive):
                sampling = batch[row][2]
                distribution = _distribution(out.logits[row, -1].float().cpu(), sampling)
                token = int(torch.multinomial(distribution.exp(), 1, generator=draws[row]))
                sampled[row].append(token)
                logprobs[row].append(float(distribution[token]))
                following[row] = token
                if token in self._stop_ids:
                    stopped.add(row)
                if row in stopped or len(sampled[row]) >= sampling.max_tokens:
                    alive.discard(row)
            tokens = following
            mask = torch.cat([mask, torch.ones_like(following)], dim=1)
            positions = positions[:, -1:] + 1
        return [
            Completion(request, tuple(sampled[row]), tuple(logprobs[row]), row in stopped)
            for row, (request, _, _) in enumerate(batch)
        ]

    @torch.inference_mode()
    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        rows = []
        for ids in sequences:
            tokens = torch.tensor([list(ids)], device=self._device)
            logp = self._model(input_ids=tokens).logits[0, :-1].float().log_softmax(-1)
            rows.append(logp.gather(1, tokens[0, 1:, None])[:, 0].tolist())
        return rows

    def load(self, weights: Iterable[tuple[str, torch.Tensor]], identity: str) -> None:
        given = dict(weights)
        # Not strict: of tied weights only one name need be given, and named_parameters lists only one.
        unknown = self._model.load_state_dict(given, strict=False).unexpected_keys
        missing = [name for name, _ in self._model.named_parameters() if name not in given]
        if unknown or missing:
            raise ValueError(f"weights do not fit the model: unknown {unknown}, missing {missing}")
        self._model.tie_weights()
        self.serves = identity

    def load_from(self, directory: Path, identity: str) -> None:
        self.load(stored_weights(directory), identity)

    def held(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Held:
        given, own = dict(weights), self._model.state_dict()
        differing = [
            name
            for name, tensor in given.items()
            if name in own and not torch.equal(own[name], tensor.to(own[name].device, own[name].dtype))
        ]
        unproved = [name for name, _ in self._model.named_parameters() if name not in given]
        return Held(tuple(differing), (*(name for name in given if name not in own), *unproved))

    def sleep(self) -> None:
        """The reference engine keeps its memory."""

    def close(self) -> None:
        self._model = None


def _distribution(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Log-probs [V] after temperature and nucleus truncation, renormalised."""
    logp = (logits / sampling.temperature).log_softmax(-1)
    if sampling.top_p < 1:
        ordered, order = logp.sort(descending=True)
        outside = ordered.exp().cumsum(-1) - ordered.exp() >= sampling.top_p
        logp = logp.index_fill(0, order[outside], float("-inf")).log_softmax(-1)
    return logp
