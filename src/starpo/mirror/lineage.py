"""Which data a run made and used, as MLflow dataset inputs with the hashes that DVC gives them.

The hashing is in libraries that DVC does not document, written for DVC 3.67.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from starpo.store.layout import Layer, RunPaths

if TYPE_CHECKING:
    from mlflow import MlflowClient

LAYERS = {Layer.ROLLOUTS: "training", Layer.SCORED: "training", Layer.EVALUATION: "evaluation"}
"""Data layers with a run's trajectories, and what MLflow calls their use."""


def dvc_digest(folder: Path) -> str:
    """DVC's hash of a folder, as ``dvc.lock`` would hold it; nothing is copied into the cache."""
    from dvc_data.hashfile.build import build  # noqa: PLC0415
    from dvc_data.hashfile.db import HashFileDB  # noqa: PLC0415
    from dvc_objects.fs.local import LocalFileSystem  # noqa: PLC0415

    files = LocalFileSystem()
    # A dry run writes nothing, but asks for a place.
    _, _, tree = build(HashFileDB(files, str(folder / ".unused")), str(folder), files, "md5", dry_run=True)
    return str(tree.hash_info.value)


def log_lineage(client: MlflowClient, run_id: str, root: Path, name: str) -> dict[str, str]:
    """Log the trajectories of run ``name`` as dataset inputs; returns their digests by layer.

    An input that the run already has with the same digest is not logged again.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag  # noqa: PLC0415

    logged = client.get_run(run_id).inputs
    known = {(each.dataset.name, each.dataset.digest) for each in (logged.dataset_inputs if logged else [])}
    digests: dict[str, str] = {}
    inputs = []
    for layer, context in LAYERS.items():
        folder = RunPaths(root, name).folder(layer)
        if not folder.is_dir():
            continue
        digests[layer] = dvc_digest(folder)
        # MLflow allows 36 characters: the hash without DVC's mark of a folder.
        digest = digests[layer].removesuffix(".dir")
        if (layer, digest) in known:
            continue
        source = json.dumps({"path": str(folder.relative_to(root)), "md5": digests[layer]})
        profile = json.dumps({"files": sum(path.is_file() for path in folder.rglob("*"))})
        dataset = Dataset(name=layer, digest=digest, source_type="dvc", source=source, profile=profile)
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
    if inputs:
        client.log_inputs(run_id, datasets=inputs)
    return digests
