"""vLLM in this process, with weights replaced in memory."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from starpo.algorithms.finite import checked_file
from starpo.config.rollout import EngineConfig
from starpo.errors import UserError
from starpo.rollout.engine import Completion, Held, Sampling
from starpo.rollout.vllm_internals import compare_weights, reload_weights, unscannable_modules_hidden

logger = logging.getLogger(__name__)


def prepare_environment(config: EngineConfig) -> None:
    """Set what vLLM reads from the process environment, before it is imported.

    What the configuration says is set whatever stands there, with a warning if that is something else.
    """
    space = str(max(1, round(config.kv_cache_gib)))
    found = os.environ.get("VLLM_CPU_KVCACHE_SPACE", space)
    if found != space:
        logger.warning(
            "VLLM_CPU_KVCACHE_SPACE=%s is not used: engine.kv_cache_gib = %g says how much",
            found,
            config.kv_cache_gib,
        )
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = space
    for name, value in {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }.items():
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
        self._eager = config.enforce_eager
        with unscannable_modules_hidden(), self._as_configured():
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
        with self._as_configured():
            outputs = self._engine.step()
        for output in outputs:
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
        with self._as_configured():
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
        self._llm.collective_rpc(reload_weights, args=(list(weights),))
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
        (found,) = self._llm.collective_rpc(compare_weights, args=(given, self.serves))
        differing = tuple(name for name in found.differing if name not in self._transformed)
        return Held(differing, (*found.unproved, *sorted(self._transformed)))

    def sleep(self) -> None:
        """Give the GPU's memory to the learner until the engine is used again; nothing unless so configured.

        vLLM's level 1: weights wait in host memory, so that the engine serves the same policy when it wakes.
        """
        if self._can_sleep and not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = True

    def _as_configured(self) -> AbstractContextManager[Any]:
        """With ``enforce_eager`` nothing is compiled, and only here: the learner lives in the same process.

        vLLM would compile a small log-prob helper even then, 20 s at the first step.
        """
        return torch.compiler.set_stance("force_eager") if self._eager else nullcontext()

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


def stored_weights(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a Hugging Face model directory.

    Raises ``UserError`` if there are none, and for a file with a number with which nothing can be computed.
    """
    from safetensors.torch import load_file  # noqa: PLC0415

    files = sorted(directory.glob("model*.safetensors"))
    if not files:
        raise UserError(f"{directory}: no model*.safetensors; the weights were pruned or never written")
    for file in files:
        yield from checked_file(load_file(file).items(), file)
