"""Whether the configured reward terms work: tried on a tiny trajectory of each environment before any work."""

from __future__ import annotations

import logging
from functools import partial

import numpy as np

from starpo.config.parameters import Parameters
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES
from starpo.errors import UserError
from starpo.rewards.bind import Term, bind_terms
from starpo.rewards.registry import NEEDED
from starpo.rewards.total import score
from starpo.rewards.trajectory import States, Trajectory, Turn
from starpo.scoring.states import known_states

logger = logging.getLogger(__name__)


def check_reward_terms(parameters: Parameters) -> None:
    """Raise ``UserError`` for an unknown term or parameter, a value that a term refuses, or one that fails.

    A judge is asked once; where it gives no score the run is warned, since such scores would be missing.
    """
    terms = bind_terms(parameters.reward.active)
    states = known_states(parameters.environment)
    _check_overlong(parameters)
    for name in sorted(terms.keys() & NEEDED.keys()):
        _check_needs(parameters, name, states)
    for environment in states.names:
        trial = _trial(environment, states, parameters.agent.max_tokens_per_turn)
        for term in terms.values():
            _try(term, trial)


def _try(term: Term, trial: Trajectory) -> None:
    scores = score(trial, [trial], {term.name: term}, where=f"on a trial trajectory of {trial.environment!r}")
    for reasons in scores.missing.values():
        logger.warning(
            "%s gives no score now (%s); scores that are missing count 0",
            term.key,
            next(iter(reasons.values())),
        )


def _trial(name: str, states: States, tokens: int) -> Trajectory:
    """A turn without an answer and one that solves the task, at the token limit; with real texts where states are
    known."""
    before, after, action = "a", "b", "c"
    env = states.environment(name)
    if env is not None:
        before, after, action = _first_step(env) or (before, after, action)
    turn = partial(Turn, observation=before, environment=name, states=states)
    silent = turn(next_observation=before, response="d", response_ids=[0], format_valid=False)
    solving = turn(
        next_observation=after,
        thought=f"So {action}.",
        response=f"<think>So {action}.</think><answer>{action}</answer>",
        response_ids=[0] * tokens,
        actions=(action,),
        executed=(action,),
        effective=1,
        stop_reason="length",
        reward=1.0,
        terminated=True,
        success=True,
    )
    return Trajectory(turns=(silent, solving), success=True, stop="terminated", environment=name)


def _first_step(env: TextEnvironment) -> tuple[str, str, str] | None:
    """Observation, the next one and the action between; None where the environment fails, as it says elsewhere."""
    try:
        before, _ = env.reset(seed=0)
        action = env.random_action(np.random.default_rng(0))
        return before, env.step(action)[0], action
    except OWN_FAILURES:
        return None


def _check_needs(parameters: Parameters, name: str, states: States) -> None:
    """A term that needs states is of no use where no environment knows any."""
    method, arguments = NEEDED[name], parameters.reward.active[name]
    known = [env for each in states.names if (env := states.environment(each)) is not None]
    if not any(env.knows(method) for env in known) and not arguments.get("actions"):
        raise UserError(
            f"reward.terms.{name}: no environment of this run has the method {method}(observation), so that it would "
            f"always be 0; give the environment's class one, or switch the term off with reward.terms.{name} = null"
        )


def _check_overlong(parameters: Parameters) -> None:
    overlong, most = parameters.reward.active.get("overlong"), parameters.agent.max_tokens_per_turn
    if overlong is not None and overlong["max_tokens"] - overlong["buffer"] >= most:
        raise UserError(
            f"reward.terms.overlong: it starts beyond max_tokens - buffer = "
            f"{overlong['max_tokens'] - overlong['buffer']:g} tokens, but agent.max_tokens_per_turn = {most} never "
            f"gets there; set max_tokens = {most}"
        )
