"""Demonstrations for the warm start: a player who sometimes looks and sometimes does not.

With probability ``expert_share`` a turn is *careful*: its thought names what matters and its answer follows the
solver. Otherwise it is *hasty*: an empty thought and random actions. A few turns are malformed. The warm-started
policy therefore has the skill and the habit of not using it, which is what reinforcement learning can change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from starpo.agent.records import Trajectory
from starpo.agent.template import ChatTemplate
from starpo.config import AgentConfig, BasePolicyConfig, EnvironmentConfig
from starpo.environments.bandit import Bandit
from starpo.environments.base import TextEnvironment
from starpo.environments.frozen_lake import GOAL, HOLE, FrozenLake, neighbours
from starpo.environments.solvers import optimal_actions
from starpo.environments.splits import Split
from starpo.rollout.engine import Completion
from starpo.rollout.episodes import RolloutPlan, begin_episodes
from starpo.seeds import Purpose, SeedKey


@dataclass(frozen=True)
class Demonstrator:
    """Writes one response per turn."""

    config: BasePolicyConfig
    """Shares and lengths."""
    agent: AgentConfig
    """Format to follow."""

    def respond(self, env: TextEnvironment, draw: np.random.Generator) -> str:
        """The text of a response in the environment's present state."""
        length = int(draw.integers(1, min(self.config.max_plan, self.agent.max_actions_per_turn) + 1))
        careful = draw.random() < self.config.expert_share
        plan = optimal_actions(env)[:length] if careful else []
        thought = look(env) if plan else ""
        actions = plan or [str(draw.choice(env.action_names)) for _ in range(length)]
        text = self._write(thought, actions)
        return _spoil(text, draw) if draw.random() < self.config.malformed_share else text

    def _write(self, thought: str, actions: list[str]) -> str:
        answer = f"<answer>{f' {self.agent.action_separator} '.join(actions)}</answer>"
        if not self.agent.think:
            return answer
        opening = "" if self.agent.prefill_think else "<think>"
        return f"{opening}{thought}</think>{answer}"


def look(env: TextEnvironment) -> str:
    """What a careful player notes: the neighbouring cells of a lake, the family of the arms, else a word."""
    if isinstance(env, FrozenLake):
        return " ".join(_cell_word(env, direction) for direction in range(4))
    if isinstance(env, Bandit):
        return "risk pays"
    return "push"


def _cell_word(env: FrozenLake, direction: int) -> str:
    target = neighbours(env.size)[env._player][direction]
    if target == env._player:
        return "edge"
    return {HOLE: "hole", GOAL: "goal"}.get(env._cells[target], "ice")


def _spoil(text: str, draw: np.random.Generator) -> str:
    """Break the format in one of the usual ways."""
    return str(
        draw.choice(
            [
                text.replace("</answer>", ""),
                text.replace("<answer>", ""),
                text.replace("<answer>", "<answer>Jump || "),
            ]
        )
    )


def demonstrate(
    environment: EnvironmentConfig,
    agent: AgentConfig,
    config: BasePolicyConfig,
    template: ChatTemplate,
) -> list[Trajectory]:
    """``config.demonstrations`` episodes on training instances, as token ledgers like any rollout's."""
    plan = RolloutPlan(
        environment.name,
        environment.arguments,
        Split.TRAIN,
        stream="demonstration",
        seed=config.seed,
        iteration=0,
        groups=config.demonstrations,
        group_size=1,
        temperature=1.0,
    )
    demonstrator = Demonstrator(config, agent)
    trajectories = []
    for number, episode in enumerate(begin_episodes(plan, agent, template)):
        draw = SeedKey(config.seed, Purpose.DEMONSTRATION, group=number).generator()
        while episode.trajectory.stop_reason is None and episode.begin_turn():
            ids = (*template.content(demonstrator.respond(episode.env, draw)), template.turn_end)
            episode.receive(Completion(number, ids, (0.0,) * len(ids), stopped=True))
        trajectories.append(episode.trajectory)
    return trajectories
