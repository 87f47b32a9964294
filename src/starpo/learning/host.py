"""One learner for the whole run, built at first use."""

from __future__ import annotations

import gc
import re
import time
from typing import TYPE_CHECKING

from starpo.config.algorithm import AlgorithmConfig
from starpo.config.learner import LearnerConfig
from starpo.errors import UserError
from starpo.store.policies import Policy

if TYPE_CHECKING:
    from starpo.learning.batching import Sequences
    from starpo.learning.learner import Learner, UpdateResult

#: What torch's allocators say; the one of the CPU raises a plain ``RuntimeError``.
_OUT_OF_MEMORY = re.compile(r"not enough memory|can't allocate memory|out of memory|Cannot allocate memory")


class LearnerHost:
    """Lent to the update node; ``at`` restores the asked policy's state on a mismatch."""

    def __init__(self) -> None:
        self._learner: Learner | None = None

    def at(
        self, policy: Policy, config: LearnerConfig, algorithm: AlgorithmConfig, *, temperature: float
    ) -> Learner:
        """The learner holding exactly the state of ``policy``."""
        if self._learner is None:
            from starpo.learning.learner import Learner  # noqa: PLC0415 - loads torch

            self._learner = Learner(policy, config, algorithm, temperature=temperature)
        self._learner.restore(policy)
        return self._learner

    def update(
        self,
        policy: Policy,
        batch: Sequences,
        config: LearnerConfig,
        algorithm: AlgorithmConfig,
        *,
        temperature: float,
        seed: int,
    ) -> tuple[Learner, UpdateResult]:
        """``policy``'s learner after the update of its iteration.

        Where memory runs out, the same once more with half of ``micro_batch_tokens``, by a new learner: of one that was
        interrupted nobody knows what it has already applied. The next iteration begins with all of them again, so that
        a resumed run does the same.

        Raises:
            UserError: memory runs out again, or the state before the iteration is not on disk.
        """

        def attempt(tokens: int) -> tuple[Learner, UpdateResult] | str:
            """The result, or what the allocator said: its exception would keep all tensors of the attempt."""
            try:
                learner = self.at(policy, config, algorithm, temperature=temperature)
                started = time.perf_counter()
                result = learner.update(
                    batch, seed=seed, iteration=policy.iteration, micro_batch_tokens=tokens
                )
                result.metrics["seconds_update"] = time.perf_counter() - started
                return learner, result
            except (RuntimeError, MemoryError) as error:
                if not ran_out_of_memory(error):
                    raise
                return (str(error) or type(error).__name__).partition("\n")[0]

        done = attempt(config.micro_batch_tokens)
        if not isinstance(done, str):
            return done
        self.close()
        half = max(1, config.micro_batch_tokens // 2)
        if not policy.is_complete:
            raise UserError(_no_memory(policy, done, f"{config.micro_batch_tokens}, and {_NOT_STORED}"))
        again = attempt(half)
        if isinstance(again, str):
            self.close()
            raise UserError(_no_memory(policy, again, f"{config.micro_batch_tokens} and again with {half}"))
        again[1].metrics["update_retries"] = 1.0
        return again

    def close(self) -> None:
        """Free the learner and what the allocator keeps."""
        self._learner = None
        gc.collect()
        from torch import cuda  # noqa: PLC0415

        if cuda.is_available():
            cuda.empty_cache()


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a GPU or in the machine's memory."""
    from torch import OutOfMemoryError  # noqa: PLC0415

    return isinstance(error, OutOfMemoryError | MemoryError) or bool(_OUT_OF_MEMORY.search(str(error)))


_NOT_STORED = "the state before it is not stored (run.checkpoint_every), so that it was not tried again"


def _no_memory(policy: Policy, said: str, tried: str) -> str:
    return (
        f"iteration {policy.iteration}: the update ran out of memory with learner.micro_batch_tokens = {tried} "
        f"({said}). Nothing of it was stored: in a fork (run.fork_from) lower learner.micro_batch_tokens, or set "
        "learner.gradient_checkpointing = true, learner.lora, learner.offload_optimizer = true or a smaller "
        "agent.max_tokens_per_trajectory; or free memory and give the same command again"
    )
