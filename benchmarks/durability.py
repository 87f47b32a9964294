"""What checksums and synchronised writing cost an iteration of a finished run.

    python benchmarks/durability.py PROJECT RUN

Writes the tables, the metrics and the policy of the run's last iteration again and again into a temporary project, in
turn with and without both, and divides the difference by the run's own median time of an iteration.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from starpo.app.datasets import JSONFileDataset, PolicyDataset, TableDataset
from starpo.store.layout import Layer, RunPaths
from starpo.store.policies import Policy
from starpo.store.policy_state import STATE_FILES, PolicyState
from starpo.store.reading import read_object, read_table

TIMES = 60


def main(project: Path, run: str) -> None:
    paths = RunPaths(project, run)
    last = max(paths.metrics())
    policy = Policy.open(paths.policy(last + 1))
    manifest = {
        name: policy.manifest[name] for name in ("iteration", "policy_step", "status", "counters", "monitor")
    }
    state = PolicyState(
        run=run,
        **manifest,
        model_files=policy.directory,
        harness=policy.harness(),
        weights=policy.tensors("weights"),
        weights_in=policy.manifest["weights_in"],
        parts={part: tensors for part in STATE_FILES if (tensors := policy.tensors(part)) is not None},
    )
    kinds = {Layer.ROLLOUTS: "turns", Layer.SCORED: "scored", Layer.UPDATES: "updates"}
    tables = {layer: read_table(paths.table(layer, last), kind) for layer, kind in kinds.items()}
    metrics = read_object(paths.metrics()[last])
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(dir=project) as folder:
        copy = RunPaths(Path(folder), run)

        def write() -> None:
            for layer, kind in kinds.items():
                TableDataset(filepath=str(copy.table(layer, last)), table=kind).save(tables[layer])
            JSONFileDataset(filepath=str(copy.folder(Layer.UPDATES) / "iter_0000.json")).save(metrics)
            PolicyDataset(filepath=str(copy.policy(last + 1))).save(state)

        for turn in range(2 * TIMES):
            safe = turn % 2 == 0
            started = time.perf_counter()
            if safe:
                write()
            else:
                with (
                    mock.patch("os.fsync"),
                    mock.patch("starpo.store.durable._sync"),
                    mock.patch("starpo.store.checksums.record"),
                    mock.patch("starpo.store.policy_state.checksum", return_value=""),
                ):
                    write()
            seconds[safe].append(time.perf_counter() - started)
    with_both, without = (1000 * statistics.median(seconds[safe]) for safe in (True, False))
    whole = 1000 * statistics.median(
        json.loads(line)["seconds_iteration"] for line in paths.timings.read_text().splitlines()
    )
    print(
        f"writing an iteration: {with_both:.1f} ms, without checksums and synchronising {without:.1f} ms; "
        f"the difference is {(with_both - without) / whole:.2%} of the run's median iteration of {whole:.0f} ms"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
