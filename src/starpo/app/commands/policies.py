"""``starpo play``, ``starpo serve`` and ``starpo champion``: trained policies at work."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from starpo.config.agent import AgentConfig
from starpo.config.rollout import EngineConfig
from starpo.errors import UserError
from starpo.mirror.registry import CHAMPION

_POLICY = "RUN, RUN@ITERATION, candidate or champion (default: champion)"


def add_commands(topics: Any, where: argparse.ArgumentParser) -> None:
    """Add both commands to the parser of ``starpo``."""
    which = argparse.ArgumentParser(add_help=False)
    which.add_argument("policy", nargs="?", default=CHAMPION, help=_POLICY)
    which.add_argument("--environment", help="whose candidate or champion, where there are several")
    play = topics.add_parser("play", parents=[where, which], help="one episode of a policy, turn by turn")
    play.add_argument("--prompt", type=int, default=0, help="number of the test instance (default: 0)")
    play.add_argument("--seed", type=int, default=0, help="instances, luck and sampling (default: 0)")
    play.add_argument("--temperature", type=float, default=0.5, help="of the sampling (default: 0.5)")
    play.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    play.set_defaults(action=_play)
    serve = topics.add_parser("serve", parents=[where, which], help="vLLM's OpenAI-compatible server")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    serve.set_defaults(action=_serve)
    _add_champion(topics, where)


def _add_champion(topics: Any, where: argparse.ArgumentParser) -> None:
    champion = topics.add_parser("champion", help="the best policy of each environment")
    actions = champion.add_subparsers(dest="what", required=True)
    actions.add_parser("show", parents=[where], help="what champion.json says")
    name = actions.add_parser("set", parents=[where], help="evaluate a policy and make it the champion")
    name.add_argument("policy", help="RUN@ITERATION")
    name.add_argument("--env", default="base", help="Kedro environment it is evaluated under")
    check = actions.add_parser(
        "check",
        parents=[where],
        help="evaluate the champion again: fails on a significant drop, promotes a better candidate",
    )
    check.add_argument("environment", nargs="?", help="default: every environment with a champion")
    check.add_argument("--candidate", help="RUN@ITERATION that may become champion")
    check.add_argument(
        "--retrained",
        action="store_true",
        help="accept other weights under the champion's name: the same training on another machine",
    )
    champion.set_defaults(action=_champion)


def _champion(console: Console, root: Path, options: argparse.Namespace) -> int:
    from starpo import champion_cli  # noqa: PLC0415

    actions = {"show": champion_cli.show, "set": champion_cli.set_champion, "check": champion_cli.check}
    return actions[options.what](console, root, options)


def _play(console: Console, root: Path, options: argparse.Namespace) -> int:
    from starpo.app.commands.named_policies import named_policy  # noqa: PLC0415
    from starpo.app.commands.play import play_episode, show_episode  # noqa: PLC0415

    if options.prompt < 0 or not 0 < options.temperature <= 2:
        raise UserError("--prompt must be 0 or more and --temperature above 0 and at most 2")
    policy = named_policy(root, options.policy, options.environment)
    trajectory = play_episode(
        policy,
        prompt=options.prompt,
        seed=options.seed,
        temperature=options.temperature,
        engine=EngineConfig(kind=options.engine),
    )
    console.print(f"{policy.identity} on test instance {options.prompt}", markup=False)
    show_episode(console, trajectory)
    return 0


def _serve(console: Console, root: Path, options: argparse.Namespace) -> int:
    from starpo.app.commands.named_policies import named_policy  # noqa: PLC0415
    from starpo.app.commands.serve import serve  # noqa: PLC0415

    policy = named_policy(root, options.policy, options.environment)
    agent = AgentConfig.model_validate(policy.harness()["agent"])
    name = policy.identity
    console.print(f"serving {name} on http://127.0.0.1:{options.port}/v1; Ctrl-C ends it", markup=False)
    serve(
        policy.model_directory,
        name=name,
        port=options.port,
        context=agent.max_tokens_per_trajectory,
        engine=EngineConfig(dtype=options.dtype),
    )
    return 0
