"""Which stored weights a run keeps, and how much disk it will need."""

from __future__ import annotations

from pathlib import Path

from starpo.config import Parameters
from starpo.learning.policy import MANIFEST, MODEL, STATE_FILES, Policy

#: Bytes per sampled or context token in the Parquet tables of an iteration, as measured with zstd.
BYTES_PER_TOKEN = 6


def evaluated_iterations(parameters: Parameters) -> list[int]:
    """Iterations whose policy is evaluated, rising: the first, every k-th, the last."""
    last, every = parameters.run.iterations, parameters.evaluation.every
    return sorted({*range(0, last + 1, every), last})


def expected_bytes(first: Path, parameters: Parameters) -> int:
    """Upper estimate of a run's disk use from its first policy, bytes.

    A complete state is the actor, its two Adam moments and, with a critic, the same three again.
    """
    model = (first / MODEL).stat().st_size
    state = model * (6 if parameters.algorithm.uses_critic else 3)
    kept = len(evaluated_iterations(parameters)) * model + (parameters.run.keep_last + 1) * state
    rollout = parameters.rollout
    trajectories = parameters.run.iterations * rollout.groups * rollout.group_size
    evaluated = sum(suite.prompts for suite in parameters.evaluation.suites.values())
    evaluations = len(evaluated_iterations(parameters)) * evaluated * parameters.evaluation.samples
    tokens = (trajectories + evaluations) * parameters.agent.max_tokens_per_trajectory
    return kept + tokens * BYTES_PER_TOKEN


def prune(models: Path, *, keep_last: int, keep_models: set[int]) -> None:
    """Drop old weights under ``models`` (``policy_*``): the last ``keep_last`` complete states stay whole.

    Iterations in ``keep_models`` keep the actor's weights. Folders that later ones repeat count as used.
    Manifests always stay.
    """
    policies = [Policy.open(path) for path in sorted(models.glob("policy_*")) if (path / MANIFEST).exists()]
    complete = [policy for policy in policies if policy.is_complete]
    whole = {policy.manifest["weights_in"] for policy in complete[-keep_last:]}
    modelled = {policy.manifest["weights_in"] for policy in policies if policy.iteration in keep_models}
    for policy in policies:
        name = policy.directory.name
        if name in whole:
            continue
        for file in STATE_FILES.values():
            (policy.directory / file).unlink(missing_ok=True)
        if name not in modelled:
            (policy.directory / MODEL).unlink(missing_ok=True)
