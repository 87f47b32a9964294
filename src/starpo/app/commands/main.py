"""``starpo``: ``runs list | show NAME | rm NAME | plot NAME…``, and the commands for policies
and pretrained models."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from starpo.app.commands import models as models_cli
from starpo.app.commands import policies as policies_cli
from starpo.config.identity import flatten
from starpo.errors import UserError
from starpo.store.layout import Layer, RunPaths, layer_folder
from starpo.store.runs import (
    RunRecord,
    current_state,
    disk_use,
    find_root,
    list_runs,
    read_record,
    remove_run,
    run_folders,
)

_COLOURS = {"running": "cyan", "finished": "green", "stopped": "yellow"}


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``starpo``; returns the exit status. Mistakes end in one message, not in a traceback."""
    options = _parser().parse_args(argv)
    root = options.root or find_root()
    wide = None if sys.stdout.isatty() else 200  # a pipe gets whole lines
    console = Console(highlight=False, width=wide)
    try:
        return options.action(console, root, options)
    except UserError as error:
        Console(stderr=True, highlight=False).print(f"error: {error}", markup=False, soft_wrap=True)
        return 1
    except (KeyboardInterrupt, EOFError):
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="starpo", description="StarPO runs on disk")
    topics = parser.add_subparsers(dest="topic", required=True)
    runs = topics.add_parser("runs", help="list, show, remove or plot runs")
    actions = runs.add_subparsers(dest="what", required=True)
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument(
        "--root", type=Path, help="project folder (default: the nearest that holds data/00_runs)"
    )
    actions.add_parser("list", parents=[where], help="all runs").set_defaults(action=_list)
    show = actions.add_parser("show", parents=[where], help="one run: state, results, parameters")
    show.add_argument("name")
    show.set_defaults(action=_show)
    remove = actions.add_parser("rm", parents=[where], help="delete a run from all data layers")
    remove.add_argument("name")
    remove.add_argument("--yes", action="store_true", help="do not ask")
    remove.set_defaults(action=_remove)
    plot = actions.add_parser(
        "plot", parents=[where], help="learning curves of one or more runs as a picture"
    )
    plot.add_argument("names", nargs="+")
    plot.add_argument("--out", type=Path, default=Path("learning_curve.png"), help="file to write")
    plot.set_defaults(action=_plot)
    policies_cli.add_commands(topics, where)
    models_cli.add_commands(topics)
    return parser


def _list(console: Console, root: Path, _: argparse.Namespace) -> int:
    records = list_runs(root)
    if not records:
        console.print(f"no runs in {layer_folder(root, Layer.RECORDS)}", markup=False)
        return 0
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state", "pipeline", "environment"):
        table.add_column(name, no_wrap=True)
    for name in ("seed", "iterations", "success", "disk"):
        table.add_column(name, justify="right", no_wrap=True)
    for record in records:
        table.add_row(
            record.name,
            _coloured(record.state),
            record.pipeline,
            str(_parameter(record, "environment", "name")),
            str(_parameter(record, "run", "seed")),
            _progress(root, record),
            _last_success(root, record),
            _size(disk_use(root, record.name)),
        )
    console.print(table)
    for record in records:
        if record.message:
            console.print(f"{record.name}: {record.message}", markup=False, soft_wrap=True)
    return 0


def _show(console: Console, root: Path, options: argparse.Namespace) -> int:
    record = read_record(root, options.name)
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, value in {
        "run": record.name,
        "state": _coloured(current_state(record))
        + (escape(f" ({record.message})") if record.message else ""),
        "pipeline": record.pipeline,
        "created": datetime.fromtimestamp(record.created / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "iterations": _progress_in_words(root, record),
        "code": record.git_commit or "unknown",
        "forked from": record.forked_from or "-",
        "fingerprint": record.fingerprint,
        "MLflow run": record.mlflow_run_id or "-",
        "disk": _size(disk_use(root, record.name)),
    }.items():
        facts.add_row(name, value)
    console.print(facts)
    evaluations = Table(
        "suite", "step", "success", "95 % interval", "return", "prompts", box=None, pad_edge=False
    )
    for suite, step, summary in _summaries(root, record.name):
        evaluations.add_row(
            suite,
            str(step),
            _number(summary.get("success")),
            f"{_number(summary.get('success_low'))} to {_number(summary.get('success_high'))}",
            _number(summary.get("return")),
            str(summary.get("prompts", "-")),
        )
    if evaluations.row_count:
        console.print()
        console.print(evaluations)
    parameters = Table("parameter", "value", box=None, pad_edge=False)
    for key, value in flatten(record.parameters).items():
        parameters.add_row(".".join(key), escape(json.dumps(value, ensure_ascii=False)))
    console.print()
    console.print(parameters)
    return 0


def _remove(console: Console, root: Path, options: argparse.Namespace) -> int:
    folders = run_folders(root, options.name)
    if folders and not options.yes:
        for folder in reversed(folders):
            console.print(f"  {folder}", markup=False, soft_wrap=True)
        size = _size(disk_use(root, options.name))
        if not sys.stdin.isatty():
            raise UserError(f"this deletes {size} of run {options.name!r}; say --yes to do it")
        if console.input(f"Delete these folders ({size})? [y/N] ", markup=False).strip().lower() not in (
            "y",
            "yes",
        ):
            console.print("nothing deleted")
            return 1
    remove_run(root, options.name)
    console.print(f"removed {options.name}; its MLflow run, if there is one, stays", markup=False)
    return 0


def _plot(console: Console, root: Path, options: argparse.Namespace) -> int:
    from starpo.reporting.plots import plot_runs  # noqa: PLC0415
    from starpo.store.run_tables import Run  # noqa: PLC0415

    plot_runs([Run(root, read_record(root, name)) for name in options.names], options.out)
    console.print(f"wrote {options.out}", markup=False)
    return 0


def _progress(root: Path, record: RunRecord) -> str:
    """``12/200``; a dash where the run goes through no iterations."""
    if not record.trains:
        return "-"
    done, beyond = _done(root, record)
    return f"{done}/{_parameter(record, 'run', 'iterations')}" + (f" (+{beyond})" if beyond else "")


def _progress_in_words(root: Path, record: RunRecord) -> str:
    if not record.trains:
        return "none: this pipeline does not train"
    done, beyond = _done(root, record)
    left_over = f"; {beyond} more from when run.iterations was higher" if beyond else ""
    return f"{done} of {_parameter(record, 'run', 'iterations')}{left_over}"


def _done(root: Path, record: RunRecord) -> tuple[int, int]:
    """Iterations done: of those that the run has now, and beyond them, where it was longer before."""
    done = len(RunPaths(root, record.name).metrics())
    total = _parameter(record, "run", "iterations")
    beyond = max(0, done - total) if isinstance(total, int) else 0
    return done - beyond, beyond


def _summaries(root: Path, name: str) -> list[tuple[str, int, dict[str, Any]]]:
    """(suite, step, summary) by suite and step; an unreadable summary is left out, a listing goes on."""
    found = []
    for (suite, step), path in RunPaths(root, name).evaluations("summary").items():
        try:
            found.append((suite, step, dict(json.loads(path.read_text(encoding="utf-8")))))
        except (OSError, ValueError, TypeError):
            continue
    return found


def _last_success(root: Path, record: RunRecord) -> str:
    summaries = _summaries(root, record.name)
    if not summaries:
        return "-"
    last = max(step for _, step, _ in summaries)
    values = [
        f"{suite} {_number(summary.get('success'))}" for suite, step, summary in summaries if step == last
    ]
    return ", ".join(values) + f" @{last}"


def _parameter(record: RunRecord, *path: str) -> Any:
    return flatten(record.parameters).get(path, "-")


def _coloured(state: str) -> str:
    colour = _COLOURS.get(state, "red")
    return f"[{colour}]{state}[/{colour}]"


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


if __name__ == "__main__":
    sys.exit(main())
