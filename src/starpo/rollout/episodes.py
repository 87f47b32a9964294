"""The episode loop: many trajectories at once, each joining the next batch as soon as its environment answered.

Scheduling is deterministic: episodes are submitted in their order, completions of one engine step are handled
in the order of their requests, and request numbers never depend on time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from starpo.agent.parser import parse_response
from starpo.agent.prompt import system_message, user_message
from starpo.agent.records import Address, StopReason, Trajectory, Turn
from starpo.agent.template import ChatTemplate
from starpo.config import AgentConfig
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import ContractError, check_step
from starpo.environments.registry import make
from starpo.environments.splits import Split, draw_instance
from starpo.rollout.engine import Completion, Engine, Sampling
from starpo.seeds import Purpose, SeedKey


@dataclass(frozen=True)
class RolloutPlan:
    """Which trajectories to draw."""

    environment: str
    """Registered name."""
    arguments: dict[str, object]
    """Arguments of the environment."""
    split: Split
    """Split of the instances."""
    stream: str
    """Seed stream: the split's name in training, the suite's in evaluation."""
    seed: int
    """Root seed."""
    iteration: int
    """Iteration of the run; 0 in evaluation: common random numbers between policies."""
    groups: int
    """Prompts."""
    group_size: int
    """Trajectories per prompt."""
    temperature: float
    """Of the sampling."""
    top_p: float = 1.0
    """Nucleus mass."""


class Episode:
    """One trajectory in the making: an environment, a token chain and the agent's limits."""

    def __init__(
        self,
        env: TextEnvironment,
        trajectory: Trajectory,
        key: SeedKey,
        agent: AgentConfig,
        template: ChatTemplate,
    ) -> None:
        self.trajectory = trajectory
        self.env = env
        self._key = key
        self._agent = agent
        self._template = template
        self._prefill = template.content("<think>") if agent.prefill_think else []
        self._observation, _ = env.reset(
            seed=trajectory.instance_seed, options={"dynamics_seed": trajectory.dynamics_seed}
        )
        self._actions_left = agent.max_actions
        opening = template.opening(
            system_message(env.rules, agent), user_message(self._observation, self._actions_left)
        )
        self.chain: list[int] = []
        self._context: list[int] = [*opening, *self._prefill]
        self._seed = 0

    def begin_turn(self) -> int:
        """Add the next context to the chain; returns the tokens left for sampling, 0 ends the trajectory."""
        room = self._agent.max_tokens_per_trajectory - len(self.chain) - len(self._context)
        if room < 1:
            self.trajectory.stop_reason = StopReason.LENGTH
            self._mark_truncated()
            return 0
        self.chain += self._context
        return room

    def next_request(self, sampling: Sampling) -> tuple[list[int], Sampling] | None:
        """Prompt and sampling of the next turn, or None when the trajectory's tokens are used up."""
        room = self.begin_turn()
        if not room:
            return None
        self._seed = dataclasses.replace(
            self._key, purpose=Purpose.SAMPLING, turn=len(self.trajectory.turns)
        ).integer()
        limit = min(room, self._agent.max_tokens_per_turn)
        return self.chain, dataclasses.replace(sampling, max_tokens=limit, seed=self._seed)

    def receive(self, completion: Completion) -> None:
        """Take the sampled tokens of this turn, act, and prepare the next context or end the trajectory."""
        ids = list(completion.token_ids)
        self.chain.extend(ids)
        text = ("<think>" if self._agent.prefill_think else "") + self._template.text(ids)
        parsed = parse_response(
            text,
            self.env.match_action,
            think=self._agent.think,
            separator=self._agent.action_separator,
            max_actions=min(self._agent.max_actions_per_turn, self._actions_left),
        )
        turn = Turn(
            observation=self._observation,
            context_ids=tuple(self._context),
            response_ids=completion.token_ids,
            response_logprobs=completion.logprobs,
            response=text,
            stop_reason=StopReason.STOP if completion.stopped else StopReason.LENGTH,
            sampling_seed=self._seed,
            thought=parsed.thought,
            actions=parsed.actions,
            format_valid=parsed.format_valid,
        )
        turn = self._act(turn)
        self.trajectory.turns.append(turn)
        self.trajectory.stop_reason = self._stop(turn)
        if self.trajectory.stop_reason in {StopReason.TURN_LIMIT, StopReason.ACTION_LIMIT}:
            self._mark_truncated()
        if self.trajectory.stop_reason is None:
            message = user_message(
                self._observation, self._actions_left, previous_valid=bool(turn.executed or turn.format_valid)
            )
            self._context = [
                *self._template.following(message, turn_end_sampled=completion.stopped),
                *self._prefill,
            ]

    def _act(self, turn: Turn) -> Turn:
        executed: list[str] = []
        reward, effective = 0.0, 0
        terminated = truncated = success = False
        info: dict[str, object] = {}
        for action in turn.actions:
            try:
                self._observation, gained, terminated, truncated, info = check_step(
                    self.trajectory.address.environment, self.env.step(action)
                )
            except ContractError:
                raise
            except Exception as error:  # an environment's own failure must not kill the run
                self.trajectory.error = f"{type(error).__name__}: {error}"
                break
            executed.append(action)
            reward += gained
            effective += bool(info["effective"])
            success = bool(info["success"])
            if terminated or truncated:
                break
        self._actions_left -= len(executed)
        return dataclasses.replace(
            turn,
            executed=tuple(executed),
            reward=reward,
            effective=effective,
            next_observation=self._observation,
            terminated=terminated,
            truncated=truncated,
            success=success,
            info=info,
        )

    def _stop(self, turn: Turn) -> StopReason | None:
        if self.trajectory.error:
            return StopReason.ENVIRONMENT_ERROR
        if turn.terminated or turn.truncated:
            return StopReason.TERMINATED
        if self._actions_left <= 0:
            return StopReason.ACTION_LIMIT
        if len(self.trajectory.turns) >= self._agent.max_turns:
            return StopReason.TURN_LIMIT
        return None

    def _mark_truncated(self) -> None:
        if self.trajectory.turns:
            self.trajectory.turns[-1] = dataclasses.replace(self.trajectory.turns[-1], truncated=True)


def begin_episodes(plan: RolloutPlan, agent: AgentConfig, template: ChatTemplate) -> list[Episode]:
    """All episodes of ``plan``, group by group; members share the instance and nothing else."""
    episodes = []
    scout = make(plan.environment, **plan.arguments)
    for group in range(plan.groups):
        key = SeedKey(plan.seed, Purpose.INSTANCE, plan.stream, plan.iteration, group)
        instance = draw_instance(scout, split=plan.split, key=key)
        for member in range(plan.group_size):
            own = dataclasses.replace(key, member=member)
            trajectory = Trajectory(
                Address(plan.environment, plan.split.value, plan.stream, plan.iteration, group, member),
                instance_seed=instance.seed,
                dynamics_seed=dataclasses.replace(own, purpose=Purpose.DYNAMICS).integer(),
            )
            env = make(plan.environment, **plan.arguments)
            episodes.append(Episode(env, trajectory, own, agent, template))
    return episodes


def run_episodes(
    engine: Engine, episodes: Sequence[Episode], *, temperature: float, top_p: float
) -> list[Trajectory]:
    """Play all episodes to their end; returns their trajectories in the given order."""
    sampling = Sampling(temperature, top_p, max_tokens=1, seed=0)
    waiting: dict[int, Episode] = {}
    numbers = iter(range(1 << 62))

    def submit(episode: Episode) -> None:
        request = episode.next_request(sampling)
        if request is not None:
            number = next(numbers)
            waiting[number] = episode
            engine.submit(number, *request)

    for episode in episodes:
        submit(episode)
    while waiting:
        for completion in engine.poll():
            episode = waiting.pop(completion.request)
            episode.receive(completion)
            if episode.trajectory.stop_reason is None:
                submit(episode)
    return [episode.trajectory for episode in episodes]


def play(engine: Engine, plan: RolloutPlan, agent: AgentConfig, template: ChatTemplate) -> list[Trajectory]:
    """Draw and play the trajectories of ``plan``."""
    episodes = begin_episodes(plan, agent, template)
    return run_episodes(engine, episodes, temperature=plan.temperature, top_p=plan.top_p)
