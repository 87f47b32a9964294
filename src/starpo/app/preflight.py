"""What is checked before any work: plug-ins by name, environment arguments, what the monitor watches, and a
state to resume from."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from typing import Any

import psutil
import torch

from starpo.agent.prompt import check_prompt
from starpo.config.environment import EnvironmentConfig
from starpo.config.parameters import Parameters
from starpo.config.resolved import Resolved
from starpo.environments.contract import OWN_FAILURES, close
from starpo.environments.registry import recipe
from starpo.errors import UserError
from starpo.learning.deepspeed_engine import learner_device
from starpo.learning.memory import MemoryEstimate, estimate_memory
from starpo.learning.model_shape import ModelShape
from starpo.learning.objective import check_objective
from starpo.monitor.indicators import check_indicators
from starpo.rewards.bind import WEIGHT
from starpo.rewards.terms import FORMAT_PENALTY
from starpo.rollout.isolated import EnvironmentBuilder
from starpo.rollout.mixture import group_counts
from starpo.rollout.vllm_engine import on_gpu
from starpo.scoring.trial import check_reward_terms
from starpo.store.damage import clear_unfinished, settle, survey
from starpo.store.layout import Layer, RunPaths
from starpo.store.model_files import ModelFiles
from starpo.store.policies import Policy
from starpo.store.policy_state import MANIFEST, PARTS
from starpo.store.retention import stored_policies

logger = logging.getLogger(__name__)


def check_before_work(root: Path, resolved: Resolved) -> MemoryEstimate | None:
    """Raise ``UserError`` for what would only fail in the middle of a run.

    Returns the memory that the run will need where it starts from a pretrained model.
    """
    parameters = resolved.parameters
    check_prompt(parameters.agent.prompt)
    check_objective(parameters)
    if not parameters.algorithm.response_mask:
        logger.warning(
            "algorithm.response_mask = false: the environment's text is trained as if the policy had written it; "
            "this is an ablation"
        )
    on_gpu(parameters.engine)
    learner_device(parameters.learner)
    costs = check_environment("environment", parameters.environment)
    check_reward_terms(parameters)
    _warn_of_cheap_silence(parameters, costs)
    _check_shares(parameters)
    terms = parameters.reward.active if parameters.reward.detailed else ()
    check_indicators(parameters.monitor, parameters.environment, terms)
    for name in parameters.evaluation.suites:
        task = parameters.evaluation.task(name, parameters.environment)
        check_environment(f"evaluation.suites.{name}", task)
    memory = _check_memory(parameters)
    for source in (resolved.fork, resolved.against):
        if source is not None:
            _ = Policy.open(RunPaths(root, source.run).policy(source.iteration)).model_directory
    paths = RunPaths(root, resolved.names["name"])
    clear_unfinished(paths)
    mend(paths, trains=resolved.pipeline.startswith("train_"))
    rewind(paths.folder(Layer.MODELS))
    return memory


def _check_memory(parameters: Parameters) -> MemoryEstimate | None:
    """The embedded policy fits anywhere; of a pretrained model nothing is loaded that would not fit."""
    if parameters.base_policy.path is None:
        return None
    shape = ModelShape.of(ModelFiles.at(parameters.base_policy.path).config())
    memory = estimate_memory(
        shape,
        parameters,
        on_gpu=learner_device(parameters.learner).type == "cuda",
        host_memory=psutil.virtual_memory().total,
        device_memory=_device_memory(parameters),
        ranks=int(os.environ.get("WORLD_SIZE", "1")),
    )
    if not memory.fits:
        path, size = parameters.base_policy.path, f"{shape.parameters / 1e6:,.0f} million parameters"
        raise UserError(
            f"base_policy.path = {path!r}: {size} do not fit into this machine\n{memory.table()}\n"
            "Less is needed with learner.lora, learner.gradient_checkpointing = true, a smaller "
            "learner.micro_batch_tokens, learner.dtype = bfloat16, engine.sleep = true or a smaller "
            "engine.gpu_memory_utilization; on GPUs also with learner.zero_stage = 3 and learner.offload_optimizer"
        )
    return memory


def _device_memory(parameters: Parameters) -> int:
    if learner_device(parameters.learner).type == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return int(psutil.virtual_memory().total)


def check_environment(key: str, config: EnvironmentConfig) -> list[float]:
    """Raise ``UserError`` where an environment of the section ``key`` cannot be built.

    Returns the cost of an action in each.
    """
    build = EnvironmentBuilder(config)
    costs = []
    for number, member in enumerate(config.members):
        try:
            environment = build.of(recipe(member.name, **member.arguments))
            costs.append(environment.action_cost)
            close(environment)
        except OWN_FAILURES as error:  # building runs code of others
            where = f"{key}.mixture.{number}" if config.mixture else key
            what = (
                "" if isinstance(error, ValueError | TypeError | UserError) else f"{type(error).__name__}: "
            )
            raise UserError(f"{where}: {what}{error}") from None
    return costs


def _warn_of_cheap_silence(parameters: Parameters, costs: list[float]) -> None:
    """Say where a turn without an answer is no dearer than one with as many actions as it may have.

    No refusal: the paper's own Sokoban is configured so.
    """
    terms, most = parameters.reward.active, parameters.agent.max_actions_per_turn
    penalty = _size(terms.get("format_penalty"), "penalty", FORMAT_PENALTY)
    scale = _size(terms.get("environment"), "scale", 1.0)
    for member, cost in zip(parameters.environment.members, costs, strict=True):
        turn = most * cost * scale * member.reward_scale
        # Sums of 0.1 differ in the last bit from what a person writes.
        if turn > 0 and (penalty < turn or math.isclose(penalty, turn)):
            logger.warning(
                "reward.terms.format_penalty.penalty = %g is not above the %g that the actions of one turn can cost in "
                "%r (agent.max_actions_per_turn = %d), so that saying nothing can pay: set the penalty above %g, or "
                "allow fewer actions",
                penalty,
                turn,
                member.known_as,
                most,
                turn,
            )


def _size(arguments: dict[str, Any] | None, name: str, default: float) -> float:
    """What a term takes or gives, its weight applied; 0 where it is not in use."""
    if arguments is None:
        return 0.0
    return float(arguments.get(name, default)) * float(arguments.get(WEIGHT, 1.0))


def _check_shares(parameters: Parameters) -> None:
    members, groups = parameters.environment.members, parameters.rollout.groups
    counts = group_counts([each.weight for each in members], groups)
    for member, count in zip(members, counts, strict=True):
        if not count:
            raise UserError(
                f"environment.mixture: {member.known_as!r} with weight {member.weight:g} gets none of rollout.groups = "
                f"{groups} groups; raise its weight or the number of groups"
            )


def mend(paths: RunPaths, *, trains: bool) -> None:
    """Take damaged files of an interrupted or finished run out of the way where they can be made again, and say so.

    Raises ``UserError`` where one is gone for good.
    """
    damages = survey(paths, trains=trains)
    if any(damage.source is None for damage in damages):
        lines = "\n".join(f"  {damage.sentence(paths.root)}" for damage in damages)
        raise UserError(
            f"run {paths.run!r} has lost files:\n{lines}\n`starpo runs repair {paths.run}` marks what is gone for good "
            "as lost; then the same command goes on without it."
        )
    for damage in damages:
        logger.warning("%s", damage.sentence(paths.root))
    settle(paths, damages)


def rewind(models: Path) -> None:
    """Make an interrupted run resumable: forget policies after the newest complete learner state.

    Their iterations are recomputed from stored rollouts. Raises ``UserError`` if no complete state is left.
    """
    policies = stored_policies(models)
    if not policies or policies[-1].is_complete or policies[-1].manifest["status"] == "imported":
        _check_readable(policies[-1:])
        return
    complete = [
        policy for policy in policies if policy.is_complete or policy.manifest["status"] == "imported"
    ]
    if not complete:
        raise UserError(
            f"{models}: no complete learner state is left to go on from; remove the run with "
            f"`starpo runs rm {models.name}`"
        )
    for policy in policies[policies.index(complete[-1]) + 1 :]:
        logger.warning(
            "going back to %s: %s holds no learner state", complete[-1].identity, policy.directory.name
        )
        (policy.directory / MANIFEST).unlink()
    _check_readable(complete[-1:])


def _check_readable(policies: list[Policy]) -> None:
    for policy in policies:
        policy.adapter_settings()
        for part in PARTS:
            policy.tensors(part)
