"""One trajectory in the making: a chain of token ids, turn by turn, under the agent's limits."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from itertools import chain

from starpo.agent.prompt import system_message, user_message
from starpo.agent.records import StopReason, Trajectory, Turn
from starpo.agent.template import ChatTemplate
from starpo.config.agent import AgentConfig
from starpo.rollout.engine import Completion, Sampling
from starpo.rollout.environments import Opening, Outcome
from starpo.seeds import Purpose, SeedKey


def too_long(trajectory: Trajectory, observation: str, agent: AgentConfig, template: ChatTemplate) -> str:
    """The environment's failure where no tokenisation of ``observation`` fits into the context; empty: it may fit.

    Said before it is tokenised, which of a very long text takes minutes.
    """
    if template.longest_token is None:
        return ""
    room = template.longest_token * agent.max_tokens_per_trajectory
    if len(observation) <= room:
        return ""
    return (
        f"an observation of {len(observation):,} characters of environment {trajectory.address.environment!r}, where "
        f"agent.max_tokens_per_trajectory = {agent.max_tokens_per_trajectory} tokens hold {room:,} at most (instance "
        f"seed {trajectory.instance_seed}, dynamics seed {trajectory.dynamics_seed})"
    )


class Episode:
    """One trajectory in the making: a token chain and the agent's limits. Its environment is elsewhere.

    A prompt shows all turns so far. Where those are more than ``agent.context_turns``, a chain begins anew with the
    system message and the last of them, in the very ids that were inserted and sampled, so that the window is a
    conversation like any other: its first user message is the state before the first turn that it shows.
    """

    def __init__(
        self,
        trajectory: Trajectory,
        opening: Opening,
        key: SeedKey,
        agent: AgentConfig,
        template: ChatTemplate,
    ) -> None:
        self.trajectory = trajectory
        self._key = key
        self._agent = agent
        self._template = template
        self._prefill = template.content("<think>") if agent.prefill_think else []
        self._observation = opening.observation
        self._actions_left = agent.max_actions
        self._system = template.system(system_message(opening.rules, agent))
        self.chain: list[int] = []
        self._context: list[int] = []
        self._chain_start = False
        # Of each turn: the user message, the header of the reply and, once it is there, the reply and its end.
        self._exchanges: list[list[int]] = []
        self._show(user_message(agent, self._observation, self._actions_left), before=self._system)
        self._seed = 0
        self._asked = 0.0

    def _show(self, message: str, *, before: Sequence[int]) -> None:
        """Prepare the next context: ``message`` after the ids ``before``, or as the last of a new window."""
        ids = [*self._template.user(message), *self._prefill]
        window = self._agent.context_turns or len(self._exchanges)
        self._chain_start = len(self._exchanges) > window
        if self._chain_start:
            before = [*self._system, *chain.from_iterable(self._exchanges[-window:])]
        self._context = [*before, *ids]
        self._exchanges.append(ids)

    def begin_turn(self) -> int:
        """Add the next context to the chain; returns the tokens left for sampling, 0 ends the trajectory."""
        begun = [] if self._chain_start else self.chain
        room = self._agent.max_tokens_per_trajectory - len(begun) - len(self._context)
        if room < 1:
            self.trajectory.stop_reason = StopReason.LENGTH
            self._mark_truncated()
            return 0
        self.chain = [*begun, *self._context]
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
        self._asked = time.perf_counter()
        return self.chain, dataclasses.replace(sampling, max_tokens=limit, seed=self._seed)

    def response(self, completion: Completion) -> tuple[str, int]:
        """Text of a turn's sampled tokens, and how many actions it may do."""
        text = ("<think>" if self._agent.prefill_think else "") + self._template.text(
            list(completion.token_ids)
        )
        return text, min(self._agent.max_actions_per_turn, self._actions_left)

    def receive(self, completion: Completion, outcome: Outcome) -> None:
        """Record this turn's sampled tokens and what came of them; prepare the next context or end."""
        self.chain.extend(completion.token_ids)
        if not outcome.error and (
            why := too_long(self.trajectory, outcome.observation, self._agent, self._template)
        ):
            outcome = dataclasses.replace(outcome, observation=self._observation, error=why)
        if outcome.error:
            self.trajectory.error = outcome.error
        seen = outcome.observation if outcome.executed else self._observation
        turn = Turn(
            observation=self._observation,
            context_ids=tuple(self._context),
            response_ids=completion.token_ids,
            response_logprobs=completion.logprobs,
            response=self.response(completion)[0],
            stop_reason=StopReason.STOP if completion.stopped else StopReason.LENGTH,
            sampling_seed=self._seed,
            thought=outcome.thought,
            actions=outcome.actions,
            format_valid=outcome.format_valid,
            executed=outcome.executed,
            reward=outcome.reward,
            effective=outcome.effective,
            next_observation=seen,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            success=outcome.success,
            info=outcome.info,
            chain_start=self._chain_start,
        )
        self._observation = seen
        self._actions_left -= len(outcome.executed)
        self.trajectory.turns.append(turn)
        self.trajectory.seconds.append(time.perf_counter() - self._asked)
        self.trajectory.stop_reason = self._stop(turn)
        if self.trajectory.stop_reason in {StopReason.TURN_LIMIT, StopReason.ACTION_LIMIT}:
            self._mark_truncated()
        if self.trajectory.stop_reason is None:
            message = user_message(
                self._agent,
                self._observation,
                self._actions_left,
                turn=len(self.trajectory.turns) + 1,
                reward=turn.reward,
                previous_valid=bool(turn.executed or turn.format_valid),
            )
            # Another end of sequence stays as it was sampled; history goes on as the template writes it.
            ended = completion.token_ids[-1:] == (self._template.turn_end,)
            glue = self._template.after_reply(turn_end_sampled=ended)
            self._exchanges[-1] += [*completion.token_ids, *glue]
            self._show(message, before=glue)

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
