"""Demonstrations for the warm start: a player who sometimes looks and sometimes does not.

With probability ``careful_share`` a turn is *careful*: its thought names what matters and its answer follows the
solver. Otherwise it is *hasty*: an empty thought and random actions. A few turns are malformed. The warm-started
policy therefore has the skill and the habit of not using it, which is what reinforcement learning can change.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from starpo.agent.records import StopReason, Trajectory
from starpo.agent.template import ChatTemplate
from starpo.config.agent import AgentConfig
from starpo.config.base_policy import BasePolicyConfig, WarmStartStage
from starpo.config.environment import EnvironmentConfig, MixtureMember
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES, ContractError
from starpo.environments.registry import make
from starpo.environments.solvers import has_solver, optimal_actions
from starpo.environments.splits import Split
from starpo.errors import UserError
from starpo.heartbeat import beat
from starpo.rollout.engine import Completion
from starpo.rollout.environments import Act, Leave, LocalEnvironments
from starpo.rollout.episode import Episode
from starpo.rollout.episodes import RolloutPlan, begin_episodes, reading_of
from starpo.rollout.isolated import MAX_LOSSES, EnvironmentBuilder
from starpo.seeds import Purpose, SeedKey

logger = logging.getLogger(__name__)

#: Share of the demonstrations that may cost the environment's process; each may take a whole limit to notice.
TOLERATED_LOSSES = 0.01


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
        actions = plan or [env.random_action(draw) for _ in range(length)]
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


@contextlib.contextmanager
def demonstrating(
    environment: str, failures: type[Exception] | tuple[type[BaseException], ...] = OWN_FAILURES
) -> Iterator[None]:
    """What the environment's own code raises inside, of the kinds ``failures``, ends as a ``UserError``."""
    try:
        yield
    except UserError:
        raise
    except failures as error:
        happened = ", ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        raise UserError(_no_base_policy(environment, happened)) from error


def _no_base_policy(environment: str, happened: str) -> str:
    return (
        f"environment {environment!r} failed while it was demonstrated for the base policy: {happened}\n"
        "Every training instance that is demonstrated must begin, and most must go to their end. Mend the environment "
        "or its arguments; docs/add_an_environment.md says how to try it with check_environment, --traceback shows "
        "where it failed"
    )


def demonstrated(environment: EnvironmentConfig, stage: WarmStartStage) -> tuple[MixtureMember, ...]:
    """Environments that a stage demonstrates: of a mixture those with a solver, by their weights.

    A stage without careful turns needs no solver and shows all of them. Raises ``UserError`` if none is left.
    """
    solvable = [
        member
        for member in environment.members
        if not stage.careful_share or has_solver(make(member.name, **member.arguments))
    ]
    if not solvable:
        names = ", ".join(member.known_as for member in environment.members)
        raise UserError(
            f"base_policy.stages: careful_share = {stage.careful_share:g} needs a solver, and {names} has none; give "
            "the class a method optimal_actions() -> list[str], or set careful_share to 0"
        )
    return tuple(solvable)


def demonstrate(
    environment: EnvironmentConfig,
    agent: AgentConfig,
    config: BasePolicyConfig,
    number: int,
    template: ChatTemplate,
) -> list[Trajectory]:
    """The episodes of stage ``number`` on training instances, as token ledgers like any rollout's."""
    stage = config.stages[number]
    shown = demonstrated(environment, stage)
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
        mixture=() if environment.mixture is None else shown,
    )
    demonstrator = Demonstrator(stage, agent, config.max_plan)
    losses = max(MAX_LOSSES, int(TOLERATED_LOSSES * stage.demonstrations))
    stand = LocalEnvironments(reading_of(agent), build=EnvironmentBuilder(environment, losses).of)
    trajectories = []
    # Its other failures end an episode in the stage itself.
    with demonstrating(environment.name, ContractError):
        for index, episode in enumerate(begin_episodes(plan, agent, template, stand)):
            if not isinstance(episode, Episode):
                raise UserError(_no_base_policy(episode.address.environment, episode.error))
            draw = SeedKey(config.seed, Purpose.DEMONSTRATION, plan.stream, group=index).generator()
            while episode.trajectory.stop_reason is None and episode.begin_turn():
                with demonstrating(episode.trajectory.address.environment):
                    response = demonstrator.respond(stand.environment(index), draw)
                ids = (*template.content(response), template.turn_end)
                completion = Completion(index, ids, (0.0,) * len(ids), stopped=True)
                episode.receive(completion, stand.act(Act(index, *episode.response(completion))))
            stand.do(Leave(index))
            beat()
            trajectories.append(episode.trajectory)
    _check_errors(environment.name, trajectories)
    return trajectories


def _check_errors(environment: str, trajectories: list[Trajectory]) -> None:
    """Say how many demonstrations the environment cut short; raise ``UserError`` where it is most of them."""
    errors = [each.error for each in trajectories if each.stop_reason is StopReason.ENVIRONMENT_ERROR]
    if not errors:
        return
    what = f"{len(errors)} of {len(trajectories)} demonstrations ended in an error, the first: {errors[0]}"
    if 2 * len(errors) > len(trajectories):
        raise UserError(_no_base_policy(environment, what))
    logger.warning("environment %r: %s", environment, what)
