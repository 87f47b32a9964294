"""A study's results from its committed cells alone: verdicts, a page and curves averaged over seeds."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from starpo.evaluation.intervals import mean_interval
from starpo.studies.cells import CURVES, Cell, CellOutcomes, read_cells
from starpo.studies.claims import Claim, ClaimsFile, Finding, decide_all, read_claims

DRAWN = ("success", "return_std", "entropy")
"""Columns of the curves that are averaged for ``dvc plots show``."""


def analyse(study: Path) -> dict[str, Finding]:
    """Decide the claims of ``study/claims.yml``; writes their findings, the verdicts alone, a page and curves."""
    claims, cells = read_claims(study / "claims.yml"), read_cells(study)
    findings = decide_all(claims.claims, list(cells.values()))
    raw = {name: finding.model_dump() for name, finding in findings.items()}
    verdicts = {name: finding.verdict for name, finding in findings.items()}
    for file, value in (("claims.json", raw), ("verdicts.json", verdicts)):
        (study / file).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    plain = {name: cell for name, (cell, _) in cells.items()}
    text = page(study.name, claims, findings, plain) + machines_of(
        [outcomes for _, outcomes in cells.values()]
    )
    (study / "results.md").write_text(text, encoding="utf-8")
    _write_plots(study, plain)
    return findings


def page(study: str, claims: ClaimsFile, findings: Mapping[str, Finding], cells: Mapping[str, Cell]) -> str:
    """``results.md``: the verdicts, then every algorithm's success and collapses."""
    lines = [
        f"# Study {study}",
        "",
        "Made by `dvc repro`; do not edit. Success is the share of solved test prompts.",
        "",
        f"## Claims, written on {claims.written}",
        "",
        "| claim | verdict | evidence |",
        "|---|---|---|",
        *(_row(claims.claims[name], finding) for name, finding in findings.items()),
        "",
        "## Success, mean over seeds with its 95 % interval over seeds",
        "",
    ]
    suites = list(dict.fromkeys(suite for cell in cells.values() for suite in cell.success))
    head = [
        "task",
        "algorithm",
        "seeds",
        *(f"{suite} before → after" for suite in suites),
        "best validation",
        "alarm",
    ]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (task, algorithm), group in _groups(cells).items():
        entries = [task, algorithm, ", ".join(str(cell.seed) for cell in group)]
        entries += [_rates(group, suite) for suite in suites]
        bests = [cell.best for cell in group if cell.best is not None]
        entries.append(f"{100 * float(np.mean(bests)):.1f}" if bests else "-")
        entries.append(", ".join("no" if cell.alarm is None else str(cell.alarm) for cell in group))
        lines.append("| " + " | ".join(entries) + " |")
    lines += ["", "Alarm: iteration at which the Echo Trap monitor saw the run collapse, by seed.", ""]
    return "\n".join(lines)


def machines_of(cells: Sequence[CellOutcomes]) -> str:
    """The last lines of ``results.md``: what the cells were computed on; empty where no cell has recorded it."""
    names = [" then ".join(dict.fromkeys(m.kind for m in cell.machines)) or "not recorded" for cell in cells]
    if not any(cell.machines for cell in cells):
        return ""
    counts = "; ".join(f"{name}: {count} cells" for name, count in sorted(Counter(names).items()))
    return f"\nComputed on {counts}. Another processor rounds otherwise.\n"


def _row(claim: Claim, finding: Finding) -> str:
    later = f" (written on {claim.written})" if claim.written else ""
    return f"| {finding.text}{later} | **{finding.verdict}** | {finding.evidence} |"


def _groups(cells: Mapping[str, Cell]) -> dict[tuple[str, str], list[Cell]]:
    """Cells by task and algorithm, seeds rising."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in sorted(cells.values(), key=lambda cell: (cell.task, cell.algorithm, cell.seed)):
        groups.setdefault((cell.task, cell.algorithm), []).append(cell)
    return groups


def _rates(group: list[Cell], suite: str) -> str:
    found = [cell.success[suite] for cell in group if suite in cell.success]
    if not found:
        return "-"
    before = 100 * float(np.mean([rate.before for rate in found]))
    after = mean_interval([100 * rate.after for rate in found], range(len(found)))
    if len(found) == 1:
        return f"{before:.1f} → {after.estimate:.1f}"
    low, high = max(after.low, 0.0), min(after.high, 100.0)
    return f"{before:.1f} → {after.estimate:.1f} ({low:.1f} to {high:.1f})"


def _write_plots(study: Path, cells: Mapping[str, Cell]) -> None:
    """``plots/TASK_QUANTITY.csv``: iteration and the mean over seeds of each algorithm."""
    values: dict[tuple[str, str], dict[str, dict[int, list[float]]]] = {}
    for name, cell in cells.items():
        with (study / CURVES / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for quantity in DRAWN:
                    at = values.setdefault((cell.task, quantity), {}).setdefault(cell.algorithm, {})
                    if row[quantity]:
                        at.setdefault(int(row["iteration"]), []).append(float(row[quantity]))
    folder = study / "plots"
    folder.mkdir(exist_ok=True)
    for (task, quantity), by_algorithm in values.items():
        algorithms = sorted(by_algorithm)
        iterations = sorted({i for curve in by_algorithm.values() for i in curve})
        with (folder / f"{task}_{quantity}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["iteration", *algorithms])
            for i in iterations:
                means = [by_algorithm[name].get(i) for name in algorithms]
                writer.writerow([i, *("" if each is None else f"{np.mean(each):.6g}" for each in means)])
