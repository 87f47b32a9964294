"""``python -m starpo.studies begin | cell | analyse | code``: what the stages of ``studies/*/dvc.yaml`` call."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from starpo.errors import UserError
from starpo.store.runs import open_run
from starpo.studies.begin import begin
from starpo.studies.code import BEGINNINGS, code_behind


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; mistakes end in one message. The working directory is the project's folder."""
    options = _parser().parse_args(argv)
    try:
        options.action(Console(highlight=False, soft_wrap=True), options)
    except UserError as error:
        Console(stderr=True, highlight=False).print(f"error: {error}", markup=False, soft_wrap=True)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m starpo.studies", description="Stages of a study")
    actions = parser.add_subparsers(dest="what", required=True)
    start = actions.add_parser("begin", help="keep a cell's run only if it can go on")
    start.add_argument("--env", required=True, help="Kedro environment of the cell")
    start.set_defaults(action=_begin)
    cell = actions.add_parser("cell", help="metrics, outcomes and curve of a finished cell")
    cell.add_argument("--task", required=True)
    cell.add_argument("--algorithm", required=True, help="training pipeline without train_")
    cell.add_argument("--seed", required=True, type=int)
    cell.set_defaults(action=_cell)
    for each in (start, cell):
        each.add_argument("--run", required=True, help="name of the cell's run")
    results = actions.add_parser("analyse", help="verdicts, page and curves from all cells")
    results.set_defaults(action=_analyse)
    code = actions.add_parser("code", help="what a stage of dvc.yaml depends on of the code")
    code.add_argument("stage", choices=sorted(BEGINNINGS))
    code.add_argument("environments", nargs="+", help="registered names of what it plays")
    code.set_defaults(action=_code)
    for each in (start, cell, results):
        each.add_argument("--study", required=True, type=Path, help="folder of the study")
    return parser


def _begin(console: Console, options: argparse.Namespace) -> None:
    console.print(begin(Path.cwd(), options.study, options.run, options.env), markup=False)


def _code(console: Console, options: argparse.Namespace) -> None:
    for name in code_behind(Path.cwd(), options.stage, options.environments):
        console.print(f"      - {name}", markup=False)


def _cell(console: Console, options: argparse.Namespace) -> None:
    # pandas takes a second to import, which begin need not wait for.
    from starpo.studies.cells import write_cell  # noqa: PLC0415

    run = open_run(options.run, Path.cwd())
    said = write_cell(options.study, run, task=options.task, algorithm=options.algorithm, seed=options.seed)
    console.print(said, markup=False)


def _analyse(console: Console, options: argparse.Namespace) -> None:
    from starpo.studies.results import analyse  # noqa: PLC0415

    for name, finding in analyse(options.study).items():
        console.print(f"{finding.verdict:10} {name}: {finding.evidence}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
