"""vLLM in this process, with weights replaced in memory."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from starpo.config.rollout import EngineConfig
from starpo.errors import UserError
from starpo.rollout.engine import Completion, Sampling
from starpo.rollout.held_weights import Held, compare


def prepare_environment(config: EngineConfig) -> None:
    """Set what vLLM reads from the process environment, before it is imported; explicit settings win."""
    settings = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(max(1, round(config.kv_cache_gib))),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if config.enforce_eager:
        # vLLM compiles a small log-prob helper even in eager mode: 20 s at the first step, for nothing here.
        settings["TORCHDYNAMO_DISABLE"] = "1"
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def on_gpu(config: EngineConfig) -> bool:
    """Whether the engine will sit on a GPU. Raises ``UserError`` if one is asked for and none is there."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("engine.device = 'cuda', but torch sees no GPU; use device auto or cpu")
    return config.device != "cpu" and torch.cuda.is_available()


class VLLMEngine:
    """Many requests at once; finished ones leave the batch, new ones join at the next step."""

    def __init__(
        self, model: Path, config: EngineConfig, *, context: int, stop_ids: Sequence[int], identity: str
    ) -> None:
        prepare_environment(config)
        from vllm import LLM  # noqa: PLC0415 - importing vLLM costs seconds and reads the environment

        gpu = on_gpu(config)
        where = {"gpu_memory_utilization": config.gpu_memory_utilization} if gpu else {}
        arguments: dict[str, Any] = dict(
            model=str(model),
            skip_tokenizer_init=True,
            dtype=config.dtype,
            tensor_parallel_size=config.tensor_parallel_size,
            enforce_eager=config.enforce_eager,
            max_model_len=context,
            max_num_seqs=config.max_sequences,
            # A seeded request whose prefill is split crashes vLLM's CPU sampler, so prompts are never split
            # and a batch always has room for the longest one.
            enable_chunked_prefill=False,
            max_num_batched_tokens=max(8192, context),
            enable_prefix_caching=True,
            async_scheduling=False,
            enable_sleep_mode=config.sleep and gpu,
            logprobs_mode="processed_logprobs",
            # Else a model folder's generation_config.json would shape the sampling behind the learner's back.
            generation_config="vllm",
            seed=0,
            disable_log_stats=True,
            **where,
        )
        with unscannable_modules_hidden():
            self._llm: Any = LLM(**arguments)
        self._engine: Any = self._llm.llm_engine
        self._stop_ids = list(stop_ids)
        self._can_sleep = config.sleep and gpu
        self._parts = config.tensor_parallel_size
        self._asleep = False
        self.serves = identity
        # Of what vLLM has just loaded itself, other values mean another form: transposed, or heads in another order.
        self._transformed: frozenset[str] = frozenset()
        self._transformed = frozenset(self.held(stored_weights(model)).differing)

    def submit(self, request: int, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        self._wake()
        self._engine.add_request(
            str(request),
            {"prompt_token_ids": list(prompt_ids)},
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                seed=sampling.seed,
                stop_token_ids=self._stop_ids,
                logprobs=0,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            ),
        )

    def poll(self) -> list[Completion]:
        finished = []
        for output in self._engine.step():
            if not output.finished:
                continue
            sample = output.outputs[0]
            ids = tuple(sample.token_ids)
            logprobs = tuple(row[token].logprob for row, token in zip(sample.logprobs, ids, strict=True))
            finished.append(Completion(int(output.request_id), ids, logprobs, sample.finish_reason == "stop"))
        return sorted(finished, key=lambda completion: completion.request)

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        from vllm import SamplingParams  # noqa: PLC0415

        self._wake()
        outputs = self._llm.generate(
            [{"prompt_token_ids": list(ids)} for ids in sequences],
            SamplingParams(temperature=1.0, max_tokens=1, prompt_logprobs=0, detokenize=False),
            use_tqdm=False,
        )
        return [
            [row[token].logprob for row, token in zip(out.prompt_logprobs[1:], ids[1:], strict=True)]
            for out, ids in zip(outputs, sequences, strict=True)
        ]

    def load(self, weights: Iterable[tuple[str, torch.Tensor]], identity: str) -> None:
        self._wake()
        self._llm.collective_rpc(_reload, args=(list(weights),))
        self._llm.reset_prefix_cache()
        self.serves = identity

    def load_from(self, directory: Path, identity: str) -> None:
        self.load(stored_weights(directory), identity)

    def held(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Held:
        """Compare with ``weights``. Tensors that vLLM holds in another form are not compared; with tensor parallelism
        none is, for each worker holds a part."""
        self._wake()
        given = dict(weights)
        if self._parts > 1:
            return Held((), tuple(given))
        (found,) = self._llm.collective_rpc(_compare, args=(given, self.serves))
        differing = tuple(name for name in found.differing if name not in self._transformed)
        return Held(differing, (*found.unproved, *sorted(self._transformed)))

    def sleep(self) -> None:
        """Give the GPU's memory to the learner until the engine is used again; nothing unless so configured.

        vLLM's level 1: weights wait in host memory, so that the engine serves the same policy when it wakes.
        """
        if self._can_sleep and not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = True

    def _wake(self) -> None:
        if self._asleep:
            # What the learner's allocator keeps without using it is memory that the engine needs back.
            torch.cuda.empty_cache()
            self._llm.wake_up()
            self._asleep = False

    def close(self) -> None:
        self._engine = None
        self._llm = None
        gc.collect()


@contextlib.contextmanager
def unscannable_modules_hidden() -> Iterator[None]:
    """Hide modules whose scan would end vLLM's start on CPU.

    There vLLM reads the ``__dict__`` of every attribute of everything in ``sys.modules``. Outside of a web request
    Flask's context proxies, imported by MLflow, answer that with a RuntimeError; llvmlite's handle of its library,
    imported by numba, answers any name with a function.
    """
    hidden = {
        name: module
        for name, module in list(sys.modules.items())
        if not all(_scannable(value) for value in list((getattr(module, "__dict__", None) or {}).values()))
    }
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(hidden)


def _scannable(value: Any) -> bool:
    try:
        return not hasattr(value, "__dict__") or isinstance(vars(value), Mapping)
    except Exception:  # whatever an object answers with is what vLLM would stumble over
        return False


def stored_weights(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a Hugging Face model directory. Raises ``UserError`` if there are none."""
    from safetensors.torch import load_file  # noqa: PLC0415

    files = sorted(directory.glob("model*.safetensors"))
    if not files:
        raise UserError(f"{directory}: no model*.safetensors; the weights were pruned or never written")
    for file in files:
        yield from load_file(file).items()


def _reload(worker: Any, weights: list[tuple[str, torch.Tensor]]) -> None:
    """Runs in every vLLM worker: replace the weights in place."""
    from vllm.config import set_current_vllm_config  # noqa: PLC0415

    with set_current_vllm_config(worker.vllm_config):
        worker.reload_weights(weights_iterator=iter(weights))
        repack_tied_head(worker.model_runner.model)


def _compare(worker: Any, sent: dict[str, torch.Tensor], identity: str) -> Held:
    """Runs in the only vLLM worker: what it holds against what was sent."""
    from vllm.config import set_current_vllm_config  # noqa: PLC0415

    with set_current_vllm_config(worker.vllm_config), torch.inference_mode():
        return compare(worker.model_runner.model, sent, identity)


def repack_tied_head(model: torch.nn.Module) -> None:
    """Refresh the CPU output head of a model with tied embeddings.

    vLLM's CPU linear method packs the head once after loading. On a reload a tied head is no weight of its own,
    so the packed copy stays stale and log-probs are silently those of the old policy.
    """
    head = getattr(model, "lm_head", None)
    tied = getattr(getattr(model, "config", None), "tie_word_embeddings", False)
    method = getattr(head, "quant_method", None)
    if tied and head is not None and method is not None and head.weight.device.type == "cpu":
        method.process_weights_after_loading(head)
