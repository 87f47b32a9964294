"""How much memory a run will need, from the model's configuration, before any weight is loaded.

Static parts follow from the number of weights and are exact; activations and the process itself are estimated with
constants that were measured (docs/gpu.md says how close they come).
"""

from __future__ import annotations

from dataclasses import dataclass

from starpo.algorithms.registry import estimator_needs
from starpo.config.parameters import Parameters
from starpo.learning.model_shape import ModelShape
from starpo.learning.models import MAX_LOGITS

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: Two moments of Adam in float32.
MOMENTS = 8
#: Activations that the backward pass keeps, over inputs and outputs of the linear layers: norms, rotations,
#: products and the gradients that are alive beside them.
ACTIVATIONS = 1.1
#: Copies of the logits at the time of their gradient, in float32: logits, log-softmax, probabilities, gradient.
LOGITS = 4
#: Interpreter, torch, DeepSpeed and vLLM with nothing loaded, on the host.
PROCESS = int(1.3 * 2**30)
#: CUDA context and libraries, on each GPU.
CONTEXT = int(0.8 * 2**30)
#: vLLM's packed copy of the weights beside the loaded ones, on the CPU.
PACKED = 2
#: Room that is left for what is not counted: allocators' fragments, batches, the page cache.
RESERVE = 0.1


@dataclass(frozen=True)
class Item:
    """One use of memory."""

    name: str
    """What it is for."""
    device: float
    """Bytes on each GPU, or on the host where there is none."""
    host: float = 0.0
    """Bytes on the host beside GPUs, all ranks together."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Uses of memory of one run, and what is there."""

    items: tuple[Item, ...]
    """Uses at the same time, in the phase with the largest sum."""
    on_gpu: bool
    """Whether ``device`` means a GPU."""
    device_memory: int
    """Bytes of a GPU, or of the host where there is none."""
    host_memory: int
    """Bytes of the host."""
    sequences: int
    """Trajectories of the greatest length that the engine's KV cache holds at a time."""

    @property
    def device(self) -> float:
        """Bytes needed on each GPU, or on the host where there is none."""
        return sum(item.device for item in self.items)

    @property
    def host(self) -> float:
        """Bytes needed on the host beside GPUs."""
        return sum(item.host for item in self.items)

    @property
    def fits(self) -> bool:
        """Whether both are there with ``RESERVE`` to spare, and the engine can hold a trajectory."""
        room = 1 - RESERVE
        enough = self.device <= room * self.device_memory and self.host <= room * self.host_memory
        return enough and self.sequences > 0

    def table(self) -> str:
        """A line per use and the sums, GiB."""
        where = "each GPU" if self.on_gpu else "host"
        lines = [f"{'memory, GiB':<34}{where:>10}" + (f"{'host':>10}" if self.on_gpu else "")]
        rows = [(item.name, item.device, item.host) for item in self.items]
        rows += [("needed", self.device, self.host), ("there", self.device_memory, self.host_memory)]
        for name, device, host in rows:
            beside = f"{host / 2**30:>10.2f}" if self.on_gpu else ""
            lines.append(f"  {name:<32}{device / 2**30:>10.2f}{beside}")
        lines.append(f"  KV cache: {self.sequences} trajectories of the greatest length at a time")
        return "\n".join(lines)


def estimate_memory(
    shape: ModelShape,
    parameters: Parameters,
    *,
    on_gpu: bool,
    device_memory: int,
    host_memory: int,
    ranks: int = 1,
) -> MemoryEstimate:
    """What a training run with these parameters needs at its peak. ``ranks``: learner processes, one per GPU."""
    learner, engine, algorithm = parameters.learner, parameters.engine, parameters.algorithm
    critic = estimator_needs(algorithm.estimator).critic
    trunk = shape.parameters - shape.head + shape.hidden
    items = [*_trained("actor", shape.parameters, shape, parameters, ranks, on_gpu)]
    if critic:
        items += _trained("critic", trunk, shape, parameters, ranks, on_gpu)
    if algorithm.kl_coefficient and learner.lora is None:
        items.append(Item("reference", shape.parameters * BYTES[learner.dtype]))
    activations = Item("activations and logits", _activations(shape, parameters))
    serving = shape.parameters * BYTES[engine.dtype] / engine.tensor_parallel_size
    sequence = _kv_cache(shape, parameters)
    if on_gpu:
        cache = engine.gpu_memory_utilization * device_memory - serving
        share = serving + max(0.0, cache)
        asleep = Item("engine, asleep", 0.0, serving * ranks) if engine.sleep else None
        # Activations and the engine's share take turns where it sleeps: the larger one counts.
        if asleep is None or share < activations.device:
            items.append(activations)
        if asleep is None or share >= activations.device:
            items += [Item("engine: weights", serving), Item("engine: KV cache", max(0.0, cache))]
        items += [*([asleep] if asleep else []), Item("process", CONTEXT, PROCESS * ranks)]
    else:
        cache = engine.kv_cache_gib * 2**30
        items += [
            activations,
            Item("engine: weights", PACKED * serving),
            Item("engine: KV cache", cache),
            Item("process", PROCESS),
        ]
    stored = _stored(shape, parameters, critic=critic)
    items.append(Item("copies for sync and checkpoint", 0.0 if on_gpu else stored, stored if on_gpu else 0.0))
    return MemoryEstimate(
        tuple(items), on_gpu, device_memory, host_memory, sequences=max(0, int(cache // sequence))
    )


def _kv_cache(shape: ModelShape, parameters: Parameters) -> float:
    """Bytes of KV cache, on each GPU, of one trajectory as long as it may get."""
    engine = parameters.engine
    numbers = parameters.agent.max_tokens_per_trajectory * shape.layers * shape.key_value
    return numbers * BYTES[engine.dtype] / engine.tensor_parallel_size


def _trained(
    role: str, weights: int, shape: ModelShape, parameters: Parameters, ranks: int, on_gpu: bool
) -> list[Item]:
    """Weights, gradients and optimizer state of a network under ZeRO, on each rank."""
    learner = parameters.learner
    width = BYTES[learner.dtype]
    stage = max(1, learner.zero_stage) if learner.dtype == "bfloat16" else learner.zero_stage
    trained = weights if learner.lora is None else shape.adapter(learner.lora)
    shared = learner.lora is not None and role == "critic" and learner.zero_stage < 3
    held = trained if shared else weights + (trained if learner.lora is not None else 0)
    split = {
        name: ranks if stage >= first else 1 for name, first in (("weights", 3), ("grads", 2), ("adam", 1))
    }
    # ZeRO keeps float32 masters of its own, in float32 too; plain AdamW trains the weights themselves.
    optimizer = trained * (MOMENTS + (4 if stage else 0)) / split["adam"]
    offloaded = learner.offload_optimizer and on_gpu
    return [
        Item(f"{role}: weights", held * width / split["weights"]),
        Item(f"{role}: gradients", trained * width / split["grads"]),
        Item(
            f"{role}: optimizer" + (" (host)" if offloaded else ""),
            0.0 if offloaded else optimizer,
            optimizer * ranks if offloaded else 0.0,
        ),
    ]


def _activations(shape: ModelShape, parameters: Parameters) -> float:
    """Of one micro-batch of the largest size, actor or critic, with the logits of its sampled tokens."""
    learner = parameters.learner
    # A chain is never divided.
    tokens = max(learner.micro_batch_tokens, parameters.agent.max_tokens_per_trajectory)
    width = BYTES[learner.dtype]
    layer = ACTIVATIONS * width * sum(sum(sizes) for sizes in shape.linear.values()) / shape.layers
    kept = shape.hidden * width if learner.gradient_checkpointing else layer
    logits = min(tokens * shape.vocabulary, MAX_LOGITS)
    return tokens * (shape.layers * kept + layer) + LOGITS * 4 * logits


def _stored(shape: ModelShape, parameters: Parameters, *, critic: bool) -> float:
    """Float32 copies on the host between update and disk: the whole policy, moments and critic."""
    lora = parameters.learner.lora
    trained = shape.parameters if lora is None else shape.adapter(lora)
    moments = MOMENTS * trained
    valued = (MOMENTS + 4) * (shape.parameters - shape.head if lora is None else trained) if critic else 0
    return 4 * shape.parameters + moments + valued
