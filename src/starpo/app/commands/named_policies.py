"""A policy by the name a person gives: ``RUN``, ``RUN@ITERATION``, ``candidate`` or ``champion``."""

from __future__ import annotations

from pathlib import Path

from starpo.errors import UserError
from starpo.evaluation.champions import find_champion
from starpo.mirror.registry import CANDIDATE, CHAMPION, find
from starpo.mirror.store_of_project import project_store
from starpo.store.layout import Layer, RunPaths
from starpo.store.policies import Policy
from starpo.store.policy_state import MODEL
from starpo.store.runs import read_record


def named_policy(root: Path, name: str, environment: str | None = None) -> Policy:
    """The stored policy called ``name``.

    Args:
        root: the project.
        name: ``champion`` (the one in Git), ``candidate`` (the registry's), ``RUN`` (its newest stored policy) or
            ``RUN@ITERATION``.
        environment: whose champion or candidate; None: the only one there is.

    Raises:
        UserError: nothing is called so; the message lists what is there.
    """
    if name == CHAMPION:
        return find_champion(root, environment)
    if name == CANDIDATE:
        return Policy.open(find(project_store(root).client, name, environment).directory)
    run, _, iteration = name.partition("@")
    read_record(root, run)  # refuses an unknown run and lists the known ones
    paths = RunPaths(root, run)
    if iteration:
        if not iteration.isdecimal():
            raise UserError(f"{name!r}: after @ comes an iteration, such as {run}@50")
        policy = Policy.open(paths.policy(int(iteration)))
        policy.model_directory  # noqa: B018 - refuses pruned weights with a remedy
        return policy
    stored = [path for path in paths.policies().values() if (path / MODEL).exists()]
    if not stored:
        raise UserError(f"run {run!r} has no stored policy in {paths.folder(Layer.MODELS)}")
    return Policy.open(stored[-1])
