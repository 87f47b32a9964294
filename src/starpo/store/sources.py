"""What a stage alone, a fork or a comparison starts from: a stored policy, rollouts or scores of some run."""

from __future__ import annotations

from pathlib import Path

from starpo.config.resolved import Source
from starpo.errors import UserError
from starpo.store.layout import Layer, RunPaths, in_names, layer_folder
from starpo.store.policies import Policy
from starpo.store.runs import check_name

#: Stages that can run alone, and what they need of their source.
STAGES = {
    "rollout": "policy",
    "evaluate": "policy",
    "update": "scored",
    "reward": "rollouts",
    "rescore": "rollouts",
}

_LAYERS = {"policy": Layer.MODELS, "rollouts": Layer.ROLLOUTS, "scored": Layer.SCORED}


def parse_source(root: Path, text: str, what: str) -> Source:
    """``RUN@ITERATION`` or ``RUN@latest``, a run's name and no path. ``what`` is policy, rollouts or scored.

    Raises ``UserError``.
    """
    run, _, iteration = text.partition("@")
    check_name(run)
    if iteration in {"", "latest"}:
        found = _iterations(RunPaths(root, run), what)
        if not found:
            raise UserError(f"{text!r}: the run {run!r} has no {what}; see `starpo runs list`")
        return Source(run, found[-1])
    if not iteration.isdigit():
        raise UserError(f"{text!r}: expected RUN@ITERATION or RUN@latest, such as my-run@0100")
    return Source(run, int(iteration))


def newest_source(root: Path, what: str, environment: str) -> Source | None:
    """The most recently written policy, rollouts or scores of that environment, or None."""
    candidates = []
    for path in layer_folder(root, _LAYERS[what]).glob("*"):
        found = _iterations(RunPaths(root, path.name), what)
        if found and f"-{in_names(environment)}-" in f"-{path.name}-" and not path.name.startswith("base-"):
            candidates.append((path.stat().st_mtime, path.name, found[-1]))
    if not candidates:
        return None
    _, name, iteration = max(candidates)
    return Source(name, iteration)


def _iterations(paths: RunPaths, what: str) -> list[int]:
    """Iterations for which the run has what is asked for, rising."""
    if what == "policy":
        return [iteration for iteration, path in paths.policies().items() if _has_model(path)]
    found = list(paths.tables(_LAYERS[what]))
    if what == "scored":
        usable = set(_iterations(paths, "policy"))
        return [iteration for iteration in found if iteration in usable]
    return found


def _has_model(path: Path) -> bool:
    try:
        return bool(Policy.open(path).model_directory)
    except UserError:
        return False
