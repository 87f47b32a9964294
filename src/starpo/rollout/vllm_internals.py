"""What this project does with vLLM beyond its public interface, written for vLLM 0.32: how it starts beside other
libraries, how weights are replaced in memory, and which of those that were sent it does not hold.

A log-prob check cannot tell the last: a bfloat16 engine rounds by more than one small update moves it. So the weights
themselves are compared, in the engine's dtype and without tolerance.
"""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from starpo.rollout.engine import Held

#: Columns read of a weight that only its layer can show; of thousands of rows they hold some of any update.
COLUMNS = 64


@dataclass(frozen=True)
class Place:
    """Where the engine holds a sent tensor."""

    module: str
    """Path of the vLLM module."""
    leaf: str
    """Name of its parameter."""
    first_row: int = 0
    """Of the block of rows, where vLLM stacks several tensors into one."""


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


def reload_weights(worker: Any, weights: list[tuple[str, torch.Tensor]]) -> None:
    """Runs in every vLLM worker: replace the weights in place."""
    from vllm.config import set_current_vllm_config  # noqa: PLC0415

    with set_current_vllm_config(worker.vllm_config):
        worker.reload_weights(weights_iterator=iter(weights))
        repack_tied_head(worker.model_runner.model)


def compare_weights(worker: Any, sent: dict[str, torch.Tensor], identity: str) -> Held:
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


def compare(model: Any, sent: Mapping[str, torch.Tensor], identity: str) -> Held:
    """Compare every tensor of ``sent`` with what the vLLM model holds and computes with.

    ``identity`` of the policy chooses the columns of layers that are read by sampling, so equal runs read the same.
    Only a model that one process holds whole can be compared.
    """
    draw = torch.Generator().manual_seed(zlib.crc32(identity.encode()))
    differing, unproved, found = [], [], set()
    for name, tensor in sent.items():
        place = _place(model, name, sent)
        same = None if place is None else _same(model, place, tensor, draw)
        if place is None or same is None:
            unproved.append(name)
            continue
        found.add(f"{place.module}.{place.leaf}")
        if not same:
            differing.append(name)
    for head, source in _tied_heads(model, sent):
        same = _same(model, Place(head, "weight"), sent[source], draw)
        if same is False:
            differing.append(f"{head}.weight (tied to {source})")
        found.add(f"{head}.weight")
    unproved += [name for name, _ in model.named_parameters() if name not in found]
    return Held(tuple(differing), tuple(unproved))


def _place(model: Any, name: str, sent: Mapping[str, torch.Tensor]) -> Place | None:
    parent, _, last = name.rpartition(".")[0].rpartition(".")
    path, _, leaf = _renamed(model, name).rpartition(".")
    for fused, parts in getattr(model, "packed_modules_mapping", {}).items():
        if last in parts and len(parts) > 1:
            before = [f"{parent}.{part}.{leaf}" for part in parts[: parts.index(last)]]
            if not all(part in sent for part in before):
                return None
            # Some models' mappers rename a part to the whole, others leave that to the loading.
            prefix, dot, end = path.rpartition(".")
            module = f"{prefix}{dot}{fused}" if end == last else path
            return Place(module, leaf, sum(sent[part].shape[0] for part in before))
    return Place(path, leaf)


def _renamed(model: Any, name: str) -> str:
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    return name if mapper is None else (mapper.map_name(name) or name)


def _same(model: Any, place: Place, sent: torch.Tensor, draw: torch.Generator) -> bool | None:
    """Whether the engine's values are those of ``sent``; None where they cannot be read."""
    try:
        module = model.get_submodule(place.module)
    except AttributeError:
        return None
    held = getattr(module, place.leaf, None)
    if not isinstance(held, torch.Tensor):
        return None
    rows = slice(place.first_row, place.first_row + sent.shape[0]) if sent.ndim else ...
    answers = []
    if held.numel():
        if held[rows].shape != sent.shape:
            return None
        answers.append(torch.equal(held[rows], sent.to(held.device, held.dtype)))
    # On the CPU a layer computes with a packed copy of its weight, of which vLLM keeps the plain form or not.
    if sent.ndim == 2 and place.leaf == "weight" and hasattr(module, "cpu_linear"):
        # The kernel does not check its input's width and would read and write beyond a narrower layer's memory.
        if _inputs(module) != sent.shape[1]:
            return None
        answers.append(_same_product(module, rows, sent.to(held.device, held.dtype), draw))
    return all(answers) if answers else None


def _inputs(module: Any) -> int | None:
    """Width of what a vLLM linear layer or output head multiplies; None where it does not say."""
    return getattr(module, "input_size", None) or getattr(module, "embedding_dim", None)


def _same_product(module: Any, rows: Any, sent: torch.Tensor, draw: torch.Generator) -> bool:
    """Compare ``sent`` with what the layer makes of rows of the identity.

    A product with 1 and zeros is exact in any dtype, but for the sign of a zero and for numbers below the
    smallest normal one, which some processors take as zero.
    """
    width = sent.shape[1]
    columns = torch.randperm(width, generator=draw)[:COLUMNS]
    picked = torch.zeros(len(columns), width, dtype=sent.dtype)
    picked[torch.arange(len(columns)), columns] = 1
    made = module.quant_method.apply(module, picked)[:, rows]
    expected = sent[:, columns].T
    if made.shape != expected.shape:
        return False
    return bool(((made - expected).abs() <= torch.finfo(sent.dtype).tiny).all())


def _tied_heads(model: Any, sent: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, str]]:
    """An output head that shares the embedding's weight and is no tensor of its own, with the embedding's name."""
    head = getattr(model, "lm_head", None)
    if "lm_head.weight" in sent or not getattr(model.config, "tie_word_embeddings", False) or head is None:
        return
    for name in sent:
        if name.endswith("embed_tokens.weight"):
            yield "lm_head", name
