"""``starpo models check PATH``: what a pretrained model will do here, before it is used."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from starpo.app.commands.options import terminal


@click.group()
def models() -> None:
    """Check a pretrained model before training with it."""


@models.command()
@click.argument("path")
def check(path: str) -> None:
    """Its chat template and whether the learner computes it exactly.

    PATH is a model directory, a .gguf file or package:NAME, as in base_policy.path.
    """

    from starpo.agent.template_report import inspect_template  # noqa: PLC0415
    from starpo.learning.architecture_check import check_architecture  # noqa: PLC0415
    from starpo.learning.model_shape import ModelShape  # noqa: PLC0415
    from starpo.store.model_files import ModelFiles  # noqa: PLC0415

    files = ModelFiles.at(path)
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
    terminal().print(table)
