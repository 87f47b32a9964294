"""Demonstrations for the warm start: a player who sometimes looks and sometimes does not.

With probability ``careful_share`` a turn is *careful*: its thought names what matters and its answer follows the
solver. Otherwise it is *hasty*: an empty thought and random actions. A few turns are malformed. The warm-started
policy therefore has the skill and the habit of not using it, which is what reinforcement learning can change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from starpo.agent.records import Trajectory
from starpo.agent.template import ChatTemplate
from starpo.config import AgentConfig, BasePolicyConfig, EnvironmentConfig, WarmStartStage
from starpo.environments.base import TextEnvironment
from starpo.environments.solvers import optimal_actions
from starpo.environments.splits import Split
from starpo.rollout.engine import Completion
from starpo.rollout.episodes import RolloutPlan, begin_episodes
from starpo.seeds import Purpose, SeedKey


@dataclass(frozen=True)
class Demonstrator:
    """Writes one response per turn."""

    stage: WarmStartStage
    """Shares of careful and of malformed turns."""
    agent: AgentConfig
    """Format to follow."""
    max_plan: int
    """Most actions per answer."""

    def respond(self, env: TextEnvironment, draw: np.random.Generator) -> str:
        """The text of a response in the environment's present state."""
        length = int(draw.integers(1, min(self.max_plan, self.agent.max_actions_per_turn) + 1))
        careful = draw.random() < self.stage.careful_share
        plan = optimal_actions(env)[:length] if careful else []
        thought = CAREFUL_THOUGHT if plan else ""
        actions = plan or [str(draw.choice(env.action_names)) for _ in range(length)]
        text = self._write(thought, actions)
        return _spoil(text, draw) if draw.random() < self.stage.malformed_share else text

    def _write(self, thought: str, actions: list[str]) -> str:
        answer = f"<answer>{f' {self.agent.action_separator} '.join(actions)}</answer>"
        if not self.agent.think:
            return answer
        opening = "" if self.agent.prefill_think else "<think>"
        return f"{opening}{thought}</think>{answer}"


#: The whole thought of a careful turn: one word, since it is sampled in every turn of every rollout.
CAREFUL_THOUGHT = "look"


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
    number: int,
    template: ChatTemplate,
) -> list[Trajectory]:
    """The episodes of stage ``number`` on training instances, as token ledgers like any rollout's."""
    stage = config.stages[number]
    plan = RolloutPlan(
        environment.name,
        environment.arguments,
        Split.TRAIN,
        stream=f"demonstration {number}",
        seed=config.seed,
        iteration=0,
        groups=stage.demonstrations,
        group_size=1,
        temperature=1.0,
    )
    demonstrator = Demonstrator(stage, agent, config.max_plan)
    trajectories = []
    for index, episode in enumerate(begin_episodes(plan, agent, template)):
        draw = SeedKey(config.seed, Purpose.DEMONSTRATION, plan.stream, group=index).generator()
        while episode.trajectory.stop_reason is None and episode.begin_turn():
            ids = (*template.content(demonstrator.respond(episode.env, draw)), template.turn_end)
            episode.receive(Completion(index, ids, (0.0,) * len(ids), stopped=True))
        trajectories.append(episode.trajectory)
    return trajectories
