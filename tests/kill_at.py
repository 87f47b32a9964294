"""``kedro run`` that ends itself by SIGKILL at a chosen moment.

    python tests/kill_at.py MOMENT COUNT ARGUMENT…

The process dies at the COUNT-th time that MOMENT comes; the ARGUMENTs are those of ``kedro run``.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

#: Moments: what is called then, and whether death comes before or after the call.
MOMENTS: dict[str, tuple[str, str, str]] = {
    "before a file has its name": ("os", "replace", "before"),
    "after a file has its name": ("os", "replace", "after"),
    "before a file is on the disk": ("os", "fsync", "before"),
    "between checksum and name": ("starpo.store.durable", "append_line", "after"),
    "engine start": ("starpo.rollout.host", "EngineHost._start", "after"),
    "turn of a rollout or an evaluation": ("starpo.rollout.episode", "Episode.receive", "before"),
    "optimizer step": ("torch.optim", "AdamW.step", "after"),
    "between update and checkpoint": ("starpo.store.policies", "Policy.trained", "after"),
    "between files of a checkpoint": ("safetensors.torch", "save_file", "after"),
    "before numbers go to MLflow": ("starpo.mirror.mirror", "MlflowMirror._log_numbers", "before"),
    "after numbers went to MLflow": ("starpo.mirror.mirror", "MlflowMirror._log_numbers", "after"),
    "between nodes": ("kedro.pipeline.node", "Node.run", "after"),
}


def arm(moment: str, count: int) -> None:
    """Let this process die at the ``count``-th time that ``moment`` comes."""
    module, name, when = MOMENTS[moment]
    holder: Any = import_module(module)
    *path, last = name.split(".")
    for part in path:
        holder = getattr(holder, part)
    setattr(holder, last, _deadly(getattr(holder, last), count, when))


def _deadly(function: Callable[..., Any], count: int, when: str) -> Callable[..., Any]:
    left = count

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return called


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.argv = ["kedro", "run", *sys.argv[3:]]
    from kedro.framework.cli import main

    main()
