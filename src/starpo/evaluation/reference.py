"""What a suite allows: the best any agent can do on its prompts, and what random play does.

Both depend on the prompts and on the harness's limits on turns and actions, not on a policy, and are computed
once per run and suite. A policy is then read between the two: ``success_of_optimum`` and ``return_normalised``.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import (
    OWN_FAILURES,
    ContractError,
    check_action,
    check_expectation,
    check_step,
    close,
)
from starpo.environments.records import Expectation, Limits
from starpo.environments.registry import make
from starpo.environments.solvers import best_play
from starpo.environments.splits import Instance
from starpo.errors import UserError
from starpo.evaluation.intervals import Interval, mean_interval
from starpo.evaluation.metrics import with_bounds
from starpo.evaluation.trajectories import Trajectories
from starpo.rollout.isolated import Build, EnvironmentGivenUp
from starpo.seeds import Purpose, SeedKey

logger = logging.getLogger(__name__)

#: Random episodes per prompt where there is no closed form: with 256 prompts a standard error below 0.01.
FLOOR_EPISODES: Final = 16
#: Optimum and floor closer than this leave no room to normalise a return in.
_NO_ROOM: Final = 1e-9

_QUANTITIES: Final = ("success", "return")


def suite_reference(
    environment: str,
    arguments: Mapping[str, Any],
    instances: Sequence[Instance],
    limits: Limits,
    *,
    suite: str,
    seed: int,
    build: Build = make,
) -> dict[str, Any]:
    """Optimum and floor of every prompt, JSON-able.

    Args:
        environment: registered name or ``module:Class``.
        arguments: its keyword arguments.
        instances: the suite's prompts; prompt g of the suite is ``instances[g]``.
        limits: of the harness.
        suite: name, which is also the seed stream.
        seed: ``evaluation.seed``, for simulated random play.
        build: how the environment is built, and where.

    Returns:
        ``prompts`` with one list per column: ``instance_seed``, ``optimum_success``, ``optimum_return`` (absent
        unless every prompt has an exact optimum), ``floor_success``, ``floor_return`` (absent for environments
        without named actions, and where all random episodes of a prompt failed to begin); their means beside it;
        ``floor_episodes``, random episodes per prompt, 0 where the floor is exact.
    """
    env = build(environment, **arguments)
    columns: dict[str, list[float]] = {"instance_seed": []}
    best: list[Expectation | None] = []
    floor: list[Expectation | None] = []
    failures = list[str]()
    for instance in instances:
        columns["instance_seed"].append(instance.seed)
        begun = _begins(env, instance, failures)
        best.append(_optimum(env, limits, failures) if begun else None)
        floor.append(_floor(env, limits, failures) if begun else None)
    # Afterwards, so that what random play breaks costs the floor alone.
    simulated = [group for group, exact in enumerate(floor) if exact is None]
    for group in simulated:
        key = SeedKey(seed, Purpose.SAMPLING, f"floor:{suite}", group=group)
        floor[group] = _simulate(env, instances[group], limits, key, failures)
    close(env)
    if failures:
        logger.warning(
            "%s: while the optimum and the floor of %s were measured, the environment failed %d times; the first: %s",
            environment,
            suite,
            len(failures),
            failures[0],
        )
    columns |= _columns("optimum", best) | _columns("floor", floor)
    means = {name: float(np.mean(values)) for name, values in columns.items() if name != "instance_seed"}
    return {
        "suite": suite,
        "environment": environment,
        "limits": dataclasses.asdict(limits),
        "floor_episodes": FLOOR_EPISODES if simulated and "floor_success" in columns else 0,
        "prompts": columns,
    } | means


def measured(t: Trajectories, reference: Mapping[str, Any]) -> dict[str, float]:
    """A suite's success and return between floor and optimum; the keys are explained in ``MEASURED``.

    Only prompts with a trajectory count, on both sides.

    Raises:
        UserError: the reference is of other prompts.
    """
    columns = reference["prompts"]
    _check_prompts(t, columns["instance_seed"])
    values: dict[str, float] = {}
    for end in ("optimum", "floor"):
        for name in _QUANTITIES:
            if f"{end}_{name}" in columns:
                per_prompt = np.asarray(columns[f"{end}_{name}"], dtype=np.float64)
                values[f"{end}_{name}"] = float(per_prompt[t.group].mean())
                if end == "floor" and reference["floor_episodes"]:
                    groups = np.unique(t.group)
                    values |= with_bounds(f"floor_{name}", mean_interval(per_prompt[groups], groups))
    return values


def on_scale(summary: Mapping[str, float], measures: Mapping[str, float]) -> dict[str, float]:
    """``success_of_optimum`` and ``return_normalised`` with their bounds.

    The optimum is exact, so that the bounds are those of success and return on another scale. A simulated
    floor's own uncertainty is left out.

    Example: success 0.6 [0.5, 0.7] of an optimum of 0.8 gives 0.75 [0.625, 0.875].
    """
    values: dict[str, float] = {}
    best = measures.get("optimum_success", 0.0)
    if best > 0:
        values |= with_bounds("success_of_optimum", _rescaled(summary, "success", 0.0, best))
    if "optimum_return" in measures and "floor_return" in measures:
        room = measures["optimum_return"] - measures["floor_return"]
        if room > _NO_ROOM:
            scaled = _rescaled(summary, "return", measures["floor_return"], room)
            values |= with_bounds("return_normalised", scaled)
    return values


def _rescaled(summary: Mapping[str, float], name: str, zero: float, unit: float) -> Interval:
    low, high = (summary.get(f"{name}_{end}", np.inf) for end in ("low", "high"))
    return Interval((summary[name] - zero) / unit, (low - zero) / unit, (high - zero) / unit)


def _begins(
    env: TextEnvironment, instance: Instance, failures: list[str], dynamics_seed: int | None = None
) -> bool:
    options = None if dynamics_seed is None else {"dynamics_seed": dynamics_seed}
    try:
        env.reset(seed=instance.seed, options=options)
    except OWN_FAILURES as error:  # an environment's own failure must not kill the run
        _note(failures, f"reset(seed={instance.seed})", error)
        return False
    return True


def _optimum(env: TextEnvironment, limits: Limits, failures: list[str]) -> Expectation | None:
    try:
        return best_play(env, limits)
    except ContractError:
        raise
    except OWN_FAILURES as error:
        _note(failures, "best_play" if env.knows("best_play") else "optimal_actions", error)
        return None


def _floor(env: TextEnvironment, limits: Limits, failures: list[str]) -> Expectation | None:
    try:
        return check_expectation(env, env.random_play(limits), of="random_play")
    except ContractError:
        raise
    except OWN_FAILURES as error:  # it is played instead
        _note(failures, "random_play", error)
        return None


def _note(failures: list[str], where: str, error: BaseException) -> None:
    if not isinstance(error, EnvironmentGivenUp):  # not a failure of its own: nothing was called
        failures.append(f"{where}: {type(error).__name__}: {error}")


def _columns(end: str, found: Sequence[Expectation | None]) -> dict[str, list[float]]:
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return {}
    return {
        f"{end}_success": [each.success for each in known],
        f"{end}_return": [each.value for each in known],
    }


def _simulate(
    env: TextEnvironment, instance: Instance, limits: Limits, key: SeedKey, failures: list[str]
) -> Expectation | None:
    """Mean of random episodes: the harness's limits used up with uniformly drawn legal actions.

    Episodes that fail to begin do not count, as in a rollout. None where none begins, and where actions are free text
    and the environment knows no random ones.
    """
    name = type(env).__name__
    success, returns = np.zeros(FLOOR_EPISODES), np.zeros(FLOOR_EPISODES)
    begun = np.zeros(FLOOR_EPISODES, dtype=bool)
    for number in range(FLOOR_EPISODES):
        own = dataclasses.replace(key, attempt=number)
        luck = dataclasses.replace(own, purpose=Purpose.DYNAMICS).integer()
        draw = own.generator()
        begun[number] = _begins(env, instance, failures, luck)
        if not begun[number]:
            continue
        for _ in range(limits.moves):
            try:
                action = check_action(name, env, env.random_action(draw), of="random_action")
                _, reward, terminated, truncated, info = check_step(name, env.step(action))
            except NotImplementedError:
                return None
            except ContractError:
                raise
            except OWN_FAILURES as error:  # ends the episode, as it does in a rollout
                _note(failures, f"random play from reset(seed={instance.seed})", error)
                break
            returns[number] += reward
            success[number] = info["success"]
            if terminated or truncated:
                break
    if not begun.any():
        return None
    return Expectation(float(success[begun].mean()), float(returns[begun].mean()))


def _check_prompts(t: Trajectories, seeds: Sequence[int]) -> None:
    played: NDArray[np.int64] = np.asarray(t.first("instance_seed"), dtype=np.int64)
    for group, seed in zip(t.group.tolist(), played.tolist(), strict=True):
        if group >= len(seeds) or seeds[group] != seed:
            raise UserError(
                f"the suite's reference does not fit the evaluated prompts: prompt {group} was played with "
                f"instance seed {seed}, the reference has "
                f"{seeds[group] if group < len(seeds) else f'only {len(seeds)} prompts'}. "
                "Remove the reference file and run again."
            )
