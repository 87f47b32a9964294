"""Results of a study from its committed files alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from builders import machine
from made_up import cell

from starpo.errors import UserError
from starpo.studies.cells import CellOutcomes
from starpo.studies.results import analyse

CLAIMS = """
written: "2026-01-01"
claims:
  ends_higher:
    {kind: higher, text: S is higher, task: lake, better: starpo_s, worse: starpo_ppo, suite: test-t1_0, margin: 0}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two algorithms, three seeds; starpo_s solves everything and its success rises by seed."""
    folder = tmp_path / "tiny"
    for name in ("cells", "outcomes", "curves"):
        (folder / name).mkdir(parents=True)
    (folder / "claims.yml").write_text(CLAIMS)
    for algorithm, rate in (("starpo_ppo", 0.0), ("starpo_s", 1.0)):
        for seed in range(3):
            summary, outcomes = cell(algorithm, seed, after=np.full(200, rate), before=np.zeros(200))
            run = f"tiny-{algorithm}-{seed}"
            (folder / "cells" / f"{run}.json").write_text(summary.model_dump_json())
            (folder / "outcomes" / f"{run}.json").write_text(outcomes.model_dump_json())
            rows = [f"{i},{seed + i},0,0.5,{'' if i else 0.25},0,0,0" for i in range(2)]
            head = (
                "iteration,success,return,return_std,entropy,gradient_norm,thought_distinct_share,approx_kl"
            )
            (folder / "curves" / f"{run}.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder


def test_verdicts_page_and_curves_are_written(study: Path) -> None:
    findings = analyse(study)
    assert {name: finding.verdict for name, finding in findings.items()} == {"ends_higher": "confirmed"}
    stored = json.loads((study / "claims.json").read_text())
    assert stored["ends_higher"]["verdict"] == "confirmed"
    assert json.loads((study / "verdicts.json").read_text()) == {"ends_higher": "confirmed"}
    page = (study / "results.md").read_text()
    assert "| S is higher | **confirmed** |" in page
    assert "| lake | starpo_s | 0, 1, 2 | 0.0 → 100.0 (100.0 to 100.0) |" in page


def test_the_page_names_the_machines_of_cells_that_recorded_them(study: Path) -> None:
    analyse(study)
    assert "Computed on" not in (study / "results.md").read_text()
    for seed, machines in ((0, (machine(),)), (1, (machine(), machine(capability="AVX512")))):
        path = study / f"outcomes/tiny-starpo_s-{seed}.json"
        outcomes = CellOutcomes.model_validate_json(path.read_text())
        path.write_text(outcomes.model_copy(update={"machines": machines}).model_dump_json())
    analyse(study)
    assert (
        (study / "results.md")
        .read_text()
        .endswith(
            "\nComputed on Abacus 1 (AVX2): 1 cells; Abacus 1 (AVX2) then Abacus 1 (AVX512): 1 cells; "
            "not recorded: 4 cells. Another processor rounds otherwise.\n"
        )
    )


def test_a_claim_of_a_later_date_says_so(study: Path) -> None:
    late = "  late: {kind: collapses, text: S falls, written: '2026-02-03', task: lake, algorithm: starpo_s, seeds: 1}"
    (study / "claims.yml").write_text(f"{CLAIMS}{late}\n")
    analyse(study)
    page = (study / "results.md").read_text()
    assert "## Claims, written on 2026-01-01" in page
    assert "| S is higher | **confirmed** |" in page
    assert "| S falls (written on 2026-02-03) | **refuted** |" in page


def test_curves_are_averaged_over_seeds_and_missing_values_stay_out(study: Path) -> None:
    analyse(study)
    with (study / "plots" / "lake_success.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["starpo_s"]) for row in rows] == [1.0, 2.0]  # seeds 0, 1, 2 plus the iteration
    with (study / "plots" / "lake_entropy.csv").open() as file:
        assert [row["starpo_ppo"] for row in csv.DictReader(file)] == ["0.25"]


def test_the_same_cells_give_the_same_bytes(study: Path) -> None:
    analyse(study)
    first = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    analyse(study)
    assert first == {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}


def test_a_damaged_cell_is_named(study: Path) -> None:
    (study / "cells" / "tiny-starpo_s-0.json").write_text("{}")
    with pytest.raises(UserError, match="tiny-starpo_s-0"):
        analyse(study)
