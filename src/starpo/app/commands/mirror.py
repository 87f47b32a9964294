"""``starpo runs mirror``: runs written into MLflow from their files."""

from __future__ import annotations

from pathlib import Path

import click

from starpo.app.commands.options import root_option
from starpo.errors import UserError
from starpo.store.runs import list_runs, read_record


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All runs that have ended.")
@click.option("--env", help="Kedro environment whose mlflow.yml counts (default: local).")
@root_option
def mirror(names: tuple[str, ...], every: bool, env: str | None, root: Path) -> None:
    """Write runs into MLflow from their files.

    What MLflow has already stays as it is, so this may be repeated. An evaluation is shown below its training: name
    the training first where MLflow has neither.
    """
    if bool(names) == every:
        raise UserError("name the runs, or say --all; starpo runs list shows them")
    from starpo.mirror.from_files import mirror_from_files  # noqa: PLC0415
    from starpo.mirror.store import open_store  # noqa: PLC0415
    from starpo.mirror.store_of_project import project_config  # noqa: PLC0415

    records = {record.name: record for record in list_runs(root)}
    if every:
        names = tuple(
            name for name, record in records.items() if record.state not in {"running", "unreadable"}
        )
    for name in names:
        read_record(root, name)  # refuses what is unknown or unreadable
    config = project_config(root, env)
    store = open_store(root, config)
    for name in names:
        run_id = mirror_from_files(root, config, store, records[name])
        click.echo(f"{name}: complete in MLflow, run {run_id}")
