"""``starpo runs verify`` and ``starpo runs repair``: files of a run that are missing or were changed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from starpo.app.commands.options import root_option
from starpo.errors import UserError
from starpo.store.checksums import lost_files, recorded
from starpo.store.damage import Damage, settle, survey
from starpo.store.layout import RunPaths
from starpo.store.runs import check_name, current_state, read_record


@click.command()
@click.argument("name")
@root_option
@click.pass_context
def verify(ctx: click.Context, name: str, root: Path) -> None:
    """Compare a run's files with the checksums in its record."""
    paths, damages = _survey(root, name)
    for damage in damages:
        click.echo(damage.sentence(root))
    for lost in lost_files(paths):
        click.echo(f"{lost} is lost, and the run goes on without it")
    sound = len(recorded(paths)) - len({damage.path for damage in damages})
    click.echo(f"{name}: {sound} recorded files are sound, {len(damages)} are not")
    ctx.exit(1 if damages else 0)


@click.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@root_option
@click.pass_context
def repair(ctx: click.Context, name: str, yes: bool, root: Path) -> None:
    """Take damaged files away, and mark as lost what cannot be made again, so that the run can go on."""
    paths, damages = _survey(root, name)
    if not damages:
        click.echo(f"{name}: nothing to repair")
        return
    for damage in damages:
        click.echo(damage.sentence(root))
    lost = sum(damage.source is None for damage in damages)
    if not yes:
        if not sys.stdin.isatty():
            raise UserError(f"this marks {lost} files of run {name!r} as lost; say --yes to do it")
        if not click.confirm(f"Mark {lost} files as lost?"):
            ctx.exit(1)
    settle(paths, damages)
    click.echo(
        f"damaged files are kept in {paths.set_aside(root / 'data')}; the command that made the run goes on now"
    )


def _survey(root: Path, name: str) -> tuple[RunPaths, list[Damage]]:
    paths = RunPaths(root, check_name(name))
    if not paths.files.exists():
        read_record(root, name)  # refuses an unknown run and lists the known ones
        raise UserError(f"run {name!r} has no {paths.files.name}: there is nothing to compare its files with")
    trains = False
    if paths.record.exists():
        record = read_record(root, name)
        trains = record.trains
        if current_state(root, record) == "running":
            raise UserError(f"run {name!r} is running; it checks what it reads by itself")
    return paths, survey(paths, trains=trains)
