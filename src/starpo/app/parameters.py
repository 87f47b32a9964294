"""Parameters resolved: base, Kedro env, preset, ``--params``, in rising precedence."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

from starpo.config.kedro_command import kedro_run
from starpo.config.parameters import Parameters, parse_parameters
from starpo.config.resolved import Resolved, Source
from starpo.errors import UserError
from starpo.store.layout import RunPaths, base_policy_run, default_name
from starpo.store.sources import STAGES, newest_source, parse_source


def resolve_parameters(
    config: dict[str, Any], pipeline: str, runtime: dict[str, Any], root: Path, env: str | None = None
) -> Resolved:
    """Merge, validate and name. Raises ``UserError``."""
    raw = copy.deepcopy(dict(config))
    presets = raw.pop("presets", {})
    merge(raw, presets.get(pipeline, {}))
    merge(raw, runtime)
    parameters = parse_parameters(raw)
    source = _find_source(root, pipeline, parameters, env)
    fork = parse_source(root, parameters.run.fork_from, "policy") if parameters.run.fork_from else None
    other = parameters.evaluation.against if pipeline == "evaluate" else None
    against = parse_source(root, other, "policy") if other else None
    name = parameters.run.name or default_name(pipeline, parameters, source, against)
    if name.startswith("base-"):
        raise UserError(
            f"run.name = {name!r}: names starting with 'base-' belong to base policies; choose another"
        )
    raw["run"]["name"] = name
    parameters = parse_parameters(raw)
    base = base_policy_run(parameters.base_policy, parameters.environment, parameters.agent)
    names = {
        "name": name,
        "base": base,
        "source": source.run if source else base,
        "source_iteration": f"{source.iteration:04d}" if source else "0000",
        "source_next": f"{source.iteration + 1:04d}" if source else "0001",
        "fork": fork.run if fork else base,
        "fork_iteration": f"{fork.iteration:04d}" if fork else "0000",
        "against": against.run if against else base,
        "against_iteration": f"{against.iteration:04d}" if against else "0000",
        "report": parameters.report.name,
    }
    # Nodes get every section whole, so that their types see defaults as well.
    typed = parameters.model_dump(mode="json")
    return Resolved(pipeline, typed, parameters, source, fork, against, names, env)


def configured_parameters(pipeline: str = "train_starpo_s", env: str | None = None) -> Resolved:
    """Those of the project around the working directory, for commands that run no pipeline.

    Args:
        pipeline: whose preset counts.
        env: Kedro environment; None: that of ``KEDRO_ENV``.
    """
    from kedro.framework.project import settings  # noqa: PLC0415
    from kedro.utils import find_kedro_project  # noqa: PLC0415

    root = find_kedro_project(Path.cwd())
    if root is None:
        raise UserError(f"{Path.cwd()}: not inside a Kedro project")
    env = env or os.environ.get("KEDRO_ENV")
    loader = settings.CONFIG_LOADER_CLASS(
        conf_source=str(root / settings.CONF_SOURCE), env=env, **settings.CONFIG_LOADER_ARGS
    )
    return resolve_parameters(loader["parameters"], pipeline, {}, root, env)


#: A name and the keyword arguments beside it: those of one estimator mean nothing to another.
_ARGUMENTS_OF = {
    "estimator": "estimator_parameters",
    "policy_loss": "policy_loss_parameters",
    "name": "arguments",
    "environment": "arguments",
}


def merge(base: dict[str, Any], over: dict[str, Any]) -> None:
    """Put ``over`` into ``base``, nested dicts key by key.

    Where ``over`` names another estimator, policy loss or environment, the arguments in ``base`` go with the
    old name, whatever ``over`` says about them.
    """
    for name, arguments in _ARGUMENTS_OF.items():
        if arguments in base and over.get(name, base.get(name)) != base.get(name):
            base[arguments] = {}
            if "mixture" in base:
                base["mixture"] = None
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = copy.deepcopy(value)


def _find_source(root: Path, pipeline: str, parameters: Parameters, env: str | None) -> Source | None:
    what = STAGES.get(pipeline)
    if what is None:
        return None
    if parameters.run.source:
        return parse_source(root, parameters.run.source, what)
    found = newest_source(root, what, parameters.environment.name)
    if found is not None:
        return found
    base = base_policy_run(parameters.base_policy, parameters.environment, parameters.agent)
    if what == "policy" and RunPaths(root, base).policy(0).exists():
        return Source(base, 0)
    remedy = "base_policy" if what == "policy" else "rollout" if what == "rollouts" else "reward"
    raise UserError(
        f"{pipeline}: there is no {what} of {parameters.environment.name} yet; "
        f"run `{kedro_run(remedy, env)}` first or name one with --params run.source=RUN@ITERATION"
    )
