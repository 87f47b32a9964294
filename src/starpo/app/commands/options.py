"""What the commands of ``starpo`` share."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from starpo.store.runs import find_root

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=find_root,
    help="Project folder (default: the nearest that holds data/00_runs).",
)


def terminal() -> Console:
    """Standard output; a pipe gets whole lines."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)
