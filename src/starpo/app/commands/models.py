"""``starpo models check PATH``: what a pretrained model will do here, before it is used."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_PATH = "a model directory, a .gguf file or package:NAME, as in base_policy.path"


def add_commands(topics: Any) -> None:
    """Add the command to the parser of ``starpo``."""
    models = topics.add_parser("models", help="check a pretrained model before training with it")
    actions = models.add_subparsers(dest="what", required=True)
    check = actions.add_parser("check", help="its chat template and whether the learner computes it exactly")
    check.add_argument("path", help=_PATH)
    check.set_defaults(action=_check, root=Path())


def _check(console: Console, _: Path, options: argparse.Namespace) -> int:
    from starpo.agent.template_report import inspect_template  # noqa: PLC0415
    from starpo.learning.architecture_check import check_architecture  # noqa: PLC0415
    from starpo.learning.model_shape import ModelShape  # noqa: PLC0415
    from starpo.store.model_files import ModelFiles  # noqa: PLC0415

    files = ModelFiles.at(options.path)
    report, config = inspect_template(files.tokenizer()), files.config()
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = (
        *report.rows(),
        ("parameters", f"{ModelShape.of(config).parameters / 1e6:,.1f} million"),
        ("learner computes it", check_architecture(config)),
    )
    for question, answer in rows:
        # Some templates' headers, such as [INST], would be read as markup.
        table.add_row(question, Text(answer))
    console.print(table)
    return 0
