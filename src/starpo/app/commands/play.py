"""One episode of a policy in the terminal, turn by turn."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from starpo.agent.records import Trajectory
from starpo.config.agent import AgentConfig
from starpo.config.environment import EnvironmentConfig
from starpo.config.rollout import EngineConfig
from starpo.environments.registry import unregistered_code
from starpo.environments.splits import Split
from starpo.errors import UserError
from starpo.rollout.episodes import RolloutPlan, play
from starpo.rollout.host import EngineHost
from starpo.store.policies import Policy
from starpo.store.policy_state import HARNESS


def play_episode(
    policy: Policy,
    *,
    prompt: int,
    seed: int,
    temperature: float,
    engine: EngineConfig,
    trusted: Collection[str] = (),
) -> Trajectory:
    """Play a test instance under the harness that the policy was trained with.

    Args:
        policy: what plays.
        prompt: number of the instance, from 0.
        seed: chooses the instances, the luck and the sampling.
        temperature: of the sampling.
        engine: what generates.
        trusted: modules that the harness may name though nobody registered them here.

    Raises:
        UserError: the harness, which may come from elsewhere, names other code.
    """
    harness = policy.harness()
    environment = EnvironmentConfig.model_validate(harness["environment"])
    _check_trusted(policy, environment, trusted)
    agent = AgentConfig.model_validate(harness["agent"])
    host = EngineHost()
    try:
        serving = host.serve(policy, engine, agent)
        plan = RolloutPlan(
            environment=environment.name,
            arguments=environment.arguments,
            split=Split.TEST,
            stream="play",
            seed=seed,
            iteration=prompt,
            groups=1,
            group_size=1,
            temperature=temperature,
            mixture=tuple(environment.mixture or ()),
        )
        return play(serving.engine, plan, agent, serving.template)[0]
    finally:
        host.close()


def _check_trusted(policy: Policy, environment: EnvironmentConfig, trusted: Collection[str]) -> None:
    named = [code for each in environment.members for code in unregistered_code(each.name, each.arguments)]
    if unknown := [code for code in dict.fromkeys(named) if code not in trusted]:
        options = " ".join(f"--trust {code}" for code in unknown)
        raise UserError(
            f"{policy.directory / HARNESS}: the environment names code that is not registered here, "
            f"{', '.join(unknown)}, and playing would run it; where it is yours, say {options}"
        )


def show_episode(console: Console, trajectory: Trajectory) -> None:
    """Observation, thought, answer and what came of it, for each turn."""
    for number, turn in enumerate(trajectory.turns, start=1):
        console.print(Panel(Text(turn.observation), title=f"turn {number}", title_align="left", expand=False))
        console.print(Text("thinks   ", style="dim") + Text(turn.thought or "(nothing)"))
        if not turn.format_valid:
            console.print(Text("says     ", style="dim") + Text(turn.response, style="yellow"))
        console.print(Text("does     ", style="dim") + Text(", ".join(turn.executed) or "(nothing)"))
        console.print(Text("reward   ", style="dim") + Text(f"{turn.reward:g}"))
    if trajectory.turns:
        last = trajectory.turns[-1]
        console.print(Panel(Text(last.next_observation), title="end", title_align="left", expand=False))
        verdict = Text("solved", style="green") if last.success else Text("not solved", style="red")
        total = sum(turn.reward for turn in trajectory.turns)
        console.print(verdict + Text(f", return {total:g}, {trajectory.stop_reason}"))
    if trajectory.error:
        console.print(f"the environment failed: {trajectory.error}", markup=False)
