"""The code that a study's cells come from, derived from the imports: what its ``dvc.yaml`` depends on.

Rooms stand there as folders; of the environments only those that the study's tasks play, and of the app only what
shapes a run. So a cell on Bandit does not depend on WebShop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

from starpo.environments.registry import make

_APP = ("starpo.app.config_loader", "starpo.app.datasets", "starpo.app.hooks.parameters")
#: Where the numbers of a stage begin: its pipelines, and how parameters and data reach them.
BEGINNINGS = {
    "base_policy": ("pipelines.base_policy", *_APP),
    "train": (
        "pipelines.base_policy",
        "pipelines.evaluate",
        "pipelines.reward",
        "pipelines.rollout",
        "pipelines.training",
        "pipelines.update",
        "starpo.app.hooks.retention",
        "starpo.app.hooks.run_record",
        *_APP,
    ),
}
_BY_FILE = ("app", "environments")
_CODE = ("src/", "pipelines/")
#: Templates are read by name, not imported.
_PROMPTS = "conf/base/prompts"


def code_behind(root: Path, stage: str, environments: Iterable[str]) -> list[str]:
    """Files and folders, from the project's folder, that a stage depends on, sorted.

    Args:
        root: the project's folder.
        stage: key of ``BEGINNINGS``.
        environments: registered names of those that it plays.
    """
    import grimp  # noqa: PLC0415 - of the tools for developers

    # The folder pipelines/ is read where it lies.
    sys.path.insert(0, str(root.resolve()))
    try:
        graph = grimp.build_graph("starpo", "pipelines")
    finally:
        sys.path.pop(0)
    used: set[str] = set()
    for start in {*BEGINNINGS[stage], *_classes(environments)}:
        for module in {start, *graph.find_descendants(start)}:
            used |= {module, *graph.find_upstream_modules(module)}
    places = {_place(root, module) for module in used if module not in {"starpo", "pipelines"}}
    return sorted({_PROMPTS, *places})


def listed_code(study: Path) -> list[str]:
    """What the stage ``train`` of the study's ``dvc.yaml`` depends on of the code."""
    stages = yaml.safe_load((study / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    return [name for name in stages["train"]["deps"] if name.startswith(_CODE)]


def _classes(environments: Iterable[str]) -> set[str]:
    """Modules of the environments' classes and of the classes that these are derived from."""
    kinds = (kind for name in environments for kind in type(make(name)).__mro__)
    return {kind.__module__ for kind in kinds if kind.__module__.startswith("starpo.")}


def _place(root: Path, module: str) -> str:
    package, *rest = module.split(".")
    top = root / ("src/starpo" if package == "starpo" else package)
    depth = 2 if package == "starpo" and rest[0] in _BY_FILE else 1
    path = top.joinpath(*rest[:depth])
    if path.is_dir() and (len(rest) < depth or rest[0] == "app"):
        path = path.joinpath(*rest[depth:]) if rest[depth:] else path / "__init__.py"
    if not path.is_dir() and path.suffix != ".py":
        path = path.with_suffix(".py")
    return path.relative_to(root).as_posix()
