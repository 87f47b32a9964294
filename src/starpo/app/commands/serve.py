"""A policy behind vLLM's OpenAI-compatible server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from starpo.config.rollout import EngineConfig
from starpo.rollout.vllm_engine import on_gpu, prepare_environment


def server_command(directory: Path, *, name: str, port: int, context: int, engine: EngineConfig) -> list[str]:
    """The command line of the server for the model in ``directory``; ``context`` in tokens."""
    # Not the command ``vllm``, which looks for a distribution of that name and does not find the one for CPUs.
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(directory.resolve()),
        "--served-model-name",
        name,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--dtype",
        engine.dtype,
        "--max-model-len",
        str(context),
        "--tensor-parallel-size",
        str(engine.tensor_parallel_size),
    ]
    if engine.enforce_eager:
        command.append("--enforce-eager")
    if on_gpu(engine):
        command += ["--gpu-memory-utilization", str(engine.gpu_memory_utilization)]
    return command


def serve(directory: Path, *, name: str, port: int, context: int, engine: EngineConfig) -> None:
    """Become the server; does not return."""
    prepare_environment(engine)
    if engine.enforce_eager:
        os.environ["TORCHDYNAMO_DISABLE"] = "1"  # nothing else works in this process
    command = server_command(directory, name=name, port=port, context=context, engine=engine)
    os.execv(command[0], command)
