"""``starpo runs``: runs on disk."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from starpo.app.commands.damage import repair, verify
from starpo.app.commands.mirror import mirror
from starpo.app.commands.options import root_option, terminal
from starpo.config.identity import flatten
from starpo.errors import UserError
from starpo.redaction import redact
from starpo.store.checksums import lost_files
from starpo.store.layout import Layer, RunPaths, layer_folder
from starpo.store.runs import (
    RunRecord,
    current_state,
    disk_use,
    list_runs,
    read_record,
    remove_run,
    run_folders,
)

_COLOURS = {"running": "cyan", "finished": "green", "stopped": "yellow"}


@click.group()
def runs() -> None:
    """List, show, check, mend, remove or plot runs."""


@runs.command("list")
@root_option
def list_(root: Path) -> None:
    """All runs."""
    console, records = terminal(), list_runs(root)
    if not records:
        console.print(f"no runs in {layer_folder(root, Layer.RECORDS)}", markup=False)
        return
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


@runs.command()
@click.argument("name")
@root_option
def show(name: str, root: Path) -> None:
    """One run: state, results, parameters."""
    console, record = terminal(), read_record(root, name)
    facts = Table(box=None, show_header=False, pad_edge=False)
    for fact, value in {
        "run": record.name,
        "state": _coloured(current_state(root, record))
        + (escape(f" ({record.message})") if record.message else ""),
        "pipeline": record.pipeline,
        "created": datetime.fromtimestamp(record.created / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "iterations": _progress_in_words(root, record),
        "code": record.git_commit or "unknown",
        "forked from": record.forked_from or "-",
        "machine": escape(_machines(record)),
        "fingerprint": record.fingerprint,
        "MLflow run": record.mlflow_run_id or "-",
        "disk": _size(disk_use(root, record.name)),
        "lost files": ", ".join(lost_files(RunPaths(root, name))) or "-",
    }.items():
        facts.add_row(fact, value)
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
        parameters.add_row(".".join(key), escape(redact(json.dumps(value, ensure_ascii=False))))
    console.print()
    console.print(parameters)


@runs.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@root_option
@click.pass_context
def rm(ctx: click.Context, name: str, yes: bool, root: Path) -> None:
    """Delete a run from all data layers."""
    folders = run_folders(root, name)
    if folders and not yes:
        for folder in reversed(folders):
            click.echo(f"  {folder}")
        size = _size(disk_use(root, name))
        if not sys.stdin.isatty():
            raise UserError(f"this deletes {size} of run {name!r}; say --yes to do it")
        if not click.confirm(f"Delete these folders ({size})?"):
            click.echo("nothing deleted")
            ctx.exit(1)
    remove_run(root, name)
    click.echo(f"removed {name}; its MLflow run, if there is one, stays")


@runs.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="learning_curve.png",
    help="File to write (default: learning_curve.png).",
)
@root_option
def plot(names: tuple[str, ...], out: Path, root: Path) -> None:
    """Learning curves of one or more runs as a picture."""
    from starpo.reporting.plots import plot_runs  # noqa: PLC0415
    from starpo.store.run_tables import Run  # noqa: PLC0415

    plot_runs([Run(root, read_record(root, name)) for name in names], out)
    click.echo(f"wrote {out}")


runs.add_command(verify)
runs.add_command(repair)
runs.add_command(mirror)


def _machines(record: RunRecord) -> str:
    """A line for each machine in order of use."""
    lines = []
    for machine in record.machines:
        versions = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
        lines.append(f"{machine.kind}, {machine.threads} threads, Python {machine.python}, {versions}")
    return "\n".join(lines) or "not recorded"


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
