"""DeepSpeed for one module: construction, optimizer state in and out, independent of the number of ranks.

What it takes from DeepSpeed beyond the public interface was written for DeepSpeed 0.19.
"""

from __future__ import annotations

import logging
import math
import os
from typing import Any

import torch
from torch import Tensor, nn

from starpo.algorithms.finite import all_usable, worst
from starpo.config.learner import LearnerConfig, OptimizerConfig
from starpo.errors import UserError

MOMENTS = ("exp_avg", "exp_avg_sq")


def learner_device(config: LearnerConfig) -> torch.device:
    """Raises ``UserError`` if a GPU is asked for and torch sees none."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("learner.device = 'cuda', but torch sees no GPU; use device auto or cpu")
    return torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")


def join_process_group(device: torch.device) -> None:
    """Start torch.distributed once; a single process becomes rank 0 of 1 without a launcher."""
    if device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed  # noqa: PLC0415 - reads DS_ACCELERATOR when imported

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    _forget_ended_groups()
    if torch.distributed.is_initialized():  # by vLLM, or by an earlier module
        backend = str(torch.distributed.get_backend())
    else:
        backend = "nccl" if device.type == "cuda" else "gloo"
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        # The shared-memory collectives serve several local ranks; compiling them costs a minute.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed insists on it
        if not torch.distributed.is_initialized():
            # A store in memory: a TCP store's port, free when it was chosen, may be taken when it is opened.
            store = torch.distributed.HashStore()
            torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    deepspeed.init_distributed(dist_backend=backend, verbose=False)


def _forget_ended_groups() -> None:
    """vLLM ends torch's process groups with its engine and tells nobody; DeepSpeed would go on with its copies."""
    from deepspeed.utils import groups  # noqa: PLC0415 - after DS_ACCELERATOR

    if groups._WORLD_GROUP is None:
        return
    try:
        torch.distributed.get_process_group_ranks(groups._WORLD_GROUP)
    except KeyError:
        groups._release_process_group_references()


class TrainedModule:
    """A module under DeepSpeed with AdamW: accumulate over micro-batches, then one step."""

    def __init__(self, module: nn.Module, optimizer: OptimizerConfig, config: LearnerConfig) -> None:
        device = learner_device(config)
        join_process_group(device)
        import deepspeed  # noqa: PLC0415

        self.device = device
        self._settings = optimizer
        parameters = [p for p in module.parameters() if p.requires_grad]
        self.engine, *_ = deepspeed.initialize(
            model=module,
            optimizer=_adamw(parameters, optimizer, config),
            config=_deepspeed_config(optimizer, config),
        )
        self.steps = 0
        #: The float32 masters by which the optimizer knows its state: parameters, or flat partitions of them.
        self._held = self._create_state()
        self._set_step_count(0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.engine(*args, **kwargs)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradient of one micro-batch; ``last`` marks the one before :meth:`step`."""
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss)

    def step(self) -> tuple[float, float]:
        """One optimizer step. Returns (global gradient norm before clipping, learning rate used).

        Where the norm is not finite the step is not taken: weights, moments and step count stay, the gradient goes.

        Raises:
            UserError: the step made a weight or a moment too large to go on with.
        """
        rate = self._rate()
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        # DeepSpeed reports no norm where it leaves the optimizer alone.
        gradients = [p.grad for _, p in self._named() if p.grad is not None] if self._plain() else []
        norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else None
        if norm is not None and not math.isfinite(norm):
            self.engine.zero_grad()
            return norm, rate
        self.engine.step()
        if getattr(self.engine.optimizer, "overflow", False):  # so a ZeRO optimizer says that it took no step
            return math.inf, rate
        self.steps += 1
        self._check_state(rate)
        return norm if norm is not None else float(self.engine.get_global_grad_norm() or 0.0), rate

    def _check_state(self, rate: float) -> None:
        """Look at what the optimizer holds, the partitions of this rank under ZeRO."""
        states = (self._base().state[tensor][key] for tensor in self._held for key in MOMENTS)
        if all_usable([*(tensor.detach() for tensor in self._held), *states]):
            return
        named = [*self.weights().items(), *self.moments().items()]
        name, tensor = next((each for each in named if not all_usable([each[1]])), named[0])
        raise UserError(
            f"optimizer step {self.steps}, learning rate {rate:g}: it made {worst(tensor):g} of an entry of {name}, "
            "with which nothing can be computed. The policy before this iteration stands: lower learning_rate "
            "or gradient_clip of learner.actor or learner.critic in a fork (run.fork_from)"
        )

    def _rate(self) -> float:
        settings = self._settings
        factor = min(1.0, (self.steps + 1) / settings.warmup_updates) if settings.warmup_updates else 1.0
        if settings.decay_updates is not None:
            factor *= max(0.0, 1.0 - self.steps / settings.decay_updates)
        return settings.learning_rate * factor

    def _named(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.engine.module.named_parameters() if p.requires_grad]

    def weights(self) -> dict[str, Tensor]:
        """Full float32 master weights by name, on the CPU."""
        return {name: self._full_weight(p).detach().float().cpu().clone() for name, p in self._named()}

    def moments(self) -> dict[str, Tensor]:
        """Full Adam moments as ``exp_avg/<name>`` and ``exp_avg_sq/<name>``, on the CPU."""
        return {
            f"{key}/{name}": self._full_moment(p, key).detach().float().cpu().clone()
            for key in MOMENTS
            for name, p in self._named()
        }

    def restore(self, weights: dict[str, Tensor], moments: dict[str, Tensor] | None, steps: int) -> None:
        """Load masters, and moments with their step count; without moments the optimizer starts afresh."""
        from deepspeed.utils import safe_set_full_optimizer_state  # noqa: PLC0415

        for name, parameter in self._named():
            self._set_weight(parameter, weights[name].to(self.device))
            for key in MOMENTS:
                moment = moments[f"{key}/{name}"] if moments else torch.zeros_like(weights[name])
                if self._plain():
                    self.engine.optimizer.state[parameter][key] = moment.to(self.device).clone()
                else:
                    safe_set_full_optimizer_state(parameter, moment.to(self.device), key)
        self.steps = steps
        self._set_step_count(steps)

    def _plain(self) -> bool:
        """Whether DeepSpeed leaves parameters and optimizer state as they are (ZeRO 0 in float32)."""
        return isinstance(self.engine.optimizer, torch.optim.Optimizer)

    def _full_weight(self, parameter: nn.Parameter) -> Tensor:
        from deepspeed.utils import safe_get_full_fp32_param  # noqa: PLC0415

        return parameter if self._plain() else safe_get_full_fp32_param(parameter)

    def _full_moment(self, parameter: nn.Parameter, key: str) -> Tensor:
        from deepspeed.utils import safe_get_full_optimizer_state  # noqa: PLC0415

        if self._plain():
            return self.engine.optimizer.state[parameter].get(key, torch.zeros_like(parameter))
        return safe_get_full_optimizer_state(parameter, key)

    def _set_weight(self, parameter: nn.Parameter, value: Tensor) -> None:
        """The float32 master and what the forward pass uses, which under ZeRO are two tensors."""
        import deepspeed  # noqa: PLC0415
        from deepspeed.utils import safe_set_full_fp32_param  # noqa: PLC0415

        if not self._plain():
            safe_set_full_fp32_param(parameter, value)
        whole = deepspeed.zero.GatheredParameters(
            [parameter], modifier_rank=0, enabled=hasattr(parameter, "ds_id")
        )
        with torch.no_grad(), whole:
            parameter.copy_(value)

    def _base(self) -> torch.optim.Optimizer:
        """The optimizer that DeepSpeed may have wrapped."""
        return self.engine.optimizer if self._plain() else self.engine.optimizer.optimizer

    def _create_state(self) -> list[Tensor]:
        """Moments of zero, for the tensors returned. Adam and DeepSpeed would create and link them at the first step
        only, so that before it there would be nothing to store or to restore into."""
        optimizer = self.engine.optimizer
        if self._plain():
            held: list[Tensor] = [parameter for _, parameter in self._named()]
        else:
            # The flat float32 partitions of ZeRO 1 and 2, and of ZeRO 3.
            names = ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat")
            held = list(next(getattr(optimizer, name) for name in names if hasattr(optimizer, name)))
        for tensor in held:
            for key in MOMENTS:
                self._base().state[tensor].setdefault(key, torch.zeros_like(tensor, requires_grad=False))
        if hasattr(optimizer, "_lazy_init_hp_params_optimizer_state"):
            optimizer._lazy_init_hp_params_optimizer_state()
        return held

    def _set_step_count(self, steps: int) -> None:
        base = self._base()
        # DeepSpeed's CPU Adam counts in a Python int, torch's in a tensor.
        counter = (
            (lambda: torch.tensor(float(steps))) if isinstance(base, torch.optim.AdamW) else lambda: steps
        )
        for state in base.state.values():
            state["step"] = counter()


def _adamw(parameters: list[nn.Parameter], settings: OptimizerConfig, config: LearnerConfig) -> Any:
    arguments: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": settings.betas,
        "weight_decay": settings.weight_decay,
    }
    if config.offload_optimizer:
        from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: PLC0415

        return DeepSpeedCPUAdam(parameters, **arguments)
    return torch.optim.AdamW(parameters, **arguments)


def _deepspeed_config(settings: OptimizerConfig, config: LearnerConfig) -> dict[str, Any]:
    # Without ZeRO DeepSpeed hides the float32 masters of a bfloat16 module; on one rank stage 1 is the same step.
    stage = max(1, config.zero_stage) if config.dtype == "bfloat16" else config.zero_stage
    zero: dict[str, Any] = {"stage": stage}
    if config.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return {
        # Losses are normalised by the whole mini-batch's tokens, so nothing is divided by a batch size here.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.gradient_clip,
        "zero_optimization": zero,
        "bf16": {"enabled": config.dtype == "bfloat16"},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1 << 30,
        "wall_clock_breakdown": False,
    }
