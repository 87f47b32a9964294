"""Which stored weights a run keeps, and how much disk it will need."""

from __future__ import annotations

import math
from pathlib import Path

from starpo.config.parameters import Parameters
from starpo.store.layout import policy_folders
from starpo.store.policies import Policy
from starpo.store.policy_state import MANIFEST, MODEL, PARTS, STATE_FILES

#: Bytes per sampled or context token in the Parquet tables of an iteration, as measured with zstd.
BYTES_PER_TOKEN = 6
#: Bytes of a stored weight, whatever the first policy came in.
FLOAT32 = 4


def evaluated_iterations(parameters: Parameters) -> list[int]:
    """Iterations whose policy is evaluated, rising: the first, every k-th, the last."""
    last, every = parameters.run.iterations, parameters.evaluation.every
    return sorted({*range(0, last + 1, every), last})


def expected_bytes(first: Path, parameters: Parameters) -> int:
    """Upper estimate of a run's disk use from its first policy, bytes.

    A complete state is the actor, its two Adam moments and, with a critic, the same three again, all in float32;
    with LoRA the merged model and the same of the adapters.
    """
    from starpo.algorithms.registry import estimator_needs  # noqa: PLC0415 - loads torch

    shapes = tensor_shapes(first / MODEL)
    model = sum(math.prod(shape) for shape in shapes.values()) * FLOAT32
    networks = 2 if estimator_needs(parameters.algorithm.estimator).critic else 1
    lora = parameters.learner.lora
    if lora is None:
        evaluated, state = model, 3 * networks * model
    else:
        # Upper bound: an adapter on every matrix.
        adapter = sum(lora.rank * sum(shape) for shape in shapes.values() if len(shape) == 2) * FLOAT32
        evaluated, state = model + adapter, model + 3 * networks * adapter
    kept = len(evaluated_iterations(parameters)) * evaluated + (parameters.run.keep_last + 1) * state
    rollout = parameters.rollout
    resample = parameters.filter.resample
    rounds = 1 + (resample.max_rounds if resample else 0)
    trajectories = parameters.run.iterations * rounds * rollout.groups * rollout.group_size
    evaluation = parameters.evaluation
    played = {*evaluation.periodic, *evaluation.final}
    prompts = sum(evaluation.suites[name].prompts for name in played)
    evaluations = len(evaluated_iterations(parameters)) * prompts * evaluation.samples
    agent = parameters.agent
    # Every turn behind the first window of turns is stored with a window of its own.
    chains = 1 if agent.context_turns is None else max(1, agent.max_turns - agent.context_turns)
    tokens = (trajectories + evaluations) * chains * agent.max_tokens_per_trajectory
    return kept + tokens * BYTES_PER_TOKEN


def tensor_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors in a safetensors file, from its header."""
    from safetensors import safe_open  # noqa: PLC0415 - loads torch

    with safe_open(file, framework="pt") as tensors:
        return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118


def last_complete(models: Path, iteration: int) -> Policy | None:
    """The newest policy under ``models``, up to ``iteration``, that learning can go on from."""
    policies = reversed(stored_policies(models))
    return next((each for each in policies if each.iteration <= iteration and each.is_complete), None)


def stored_policies(models: Path) -> list[Policy]:
    """The policies under ``models``, rising. A folder without a manifest is one that a run has gone back behind."""
    return [Policy.open(path) for path in policy_folders(models).values() if (path / MANIFEST).exists()]


def prune(models: Path, *, keep_last: int, keep_models: set[int], keep_state: int | None = None) -> None:
    """Drop old weights under ``models`` (``policy_*``): the last ``keep_last`` complete states stay whole.

    So does the newest complete state up to iteration ``keep_state``, which a roll-back would return to.
    Iterations in ``keep_models`` and the newest, which the next policy repeats where nothing is learned, keep the
    actor's weights and adapter. Folders that later ones repeat count as used. Manifests always stay.
    """
    policies = stored_policies(models)
    complete = [policy for policy in policies if policy.is_complete]
    whole = {policy.manifest["weights_in"] for policy in complete[-keep_last:]}
    if keep_state is not None:
        good = [policy for policy in complete if policy.iteration <= keep_state]
        whole |= {policy.manifest["weights_in"] for policy in good[-1:]}
    modelled = {policy.manifest["weights_in"] for policy in policies if policy.iteration in keep_models}
    modelled |= {policy.manifest["weights_in"] for policy in policies[-1:]}
    for policy in policies:
        name = policy.directory.name
        if name in whole:
            continue
        for file in STATE_FILES.values():
            (policy.directory / file).unlink(missing_ok=True)
        if name not in modelled:
            for part in ("weights", "adapter"):
                (policy.directory / PARTS[part]).unlink(missing_ok=True)
