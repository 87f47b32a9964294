"""``starpo play`` and ``starpo serve``: trained policies at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from starpo.app.commands.options import root_option, terminal
from starpo.config.agent import AgentConfig
from starpo.config.rollout import EngineConfig


def _policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which policy a command is about."""
    policy = click.argument(
        "policy", default="champion", metavar="[RUN | RUN@ITERATION | candidate | champion]"
    )
    environment = click.option("--environment", help="Whose candidate or champion, where there are several.")
    return policy(environment(root_option(command)))


@click.command()
@_policy_options
@click.option("--prompt", type=click.IntRange(0), default=0, help="Number of the test instance (default: 0).")
@click.option("--seed", type=int, default=0, help="Instances, luck and sampling (default: 0).")
@click.option(
    "--temperature",
    type=click.FloatRange(0, 2, min_open=True),
    default=0.5,
    help="Of the sampling (default: 0.5).",
)
@click.option("--engine", type=click.Choice(("transformers", "vllm")), default="transformers")
@click.option(
    "--trust",
    multiple=True,
    metavar="MODULE:NAME",
    help="Code that the policy's harness may name though it is not registered; it is run.",
)
def play(
    policy: str,
    environment: str | None,
    root: Path,
    prompt: int,
    seed: int,
    temperature: float,
    engine: Any,
    trust: tuple[str, ...],
) -> None:
    """One episode of a policy (default: the champion), turn by turn."""
    from starpo.app.commands.named_policies import named_policy  # noqa: PLC0415
    from starpo.app.commands.play import play_episode, show_episode  # noqa: PLC0415

    player = named_policy(root, policy, environment)
    trajectory = play_episode(
        player,
        prompt=prompt,
        seed=seed,
        temperature=temperature,
        engine=EngineConfig(kind=engine),
        trusted=trust,
    )
    console = terminal()
    console.print(f"{player.identity} on test instance {prompt}", markup=False)
    show_episode(console, trajectory)


@click.command()
@_policy_options
@click.option("--port", type=int, default=8000)
@click.option("--dtype", type=click.Choice(("float32", "bfloat16", "float16")), default="float32")
def serve(policy: str, environment: str | None, root: Path, port: int, dtype: Any) -> None:
    """A policy (default: the champion) behind vLLM's OpenAI-compatible server."""
    from starpo.app.commands.named_policies import named_policy  # noqa: PLC0415
    from starpo.app.commands.serve import serve as become_server  # noqa: PLC0415

    served = named_policy(root, policy, environment)
    agent = AgentConfig.model_validate(served.harness()["agent"])
    terminal().print(f"serving {served.identity} on http://127.0.0.1:{port}/v1; Ctrl-C ends it", markup=False)
    become_server(
        served.model_directory,
        name=served.identity,
        port=port,
        context=agent.max_tokens_per_trajectory,
        engine=EngineConfig(dtype=dtype),
    )
