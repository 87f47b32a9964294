"""``starpo``: the commands put together.

What they need beyond the records of runs is imported when one of them works, so that none pays for the others.
"""

from __future__ import annotations

import click

from starpo.app.commands.champions import champion
from starpo.app.commands.models import models
from starpo.app.commands.policies import play, serve
from starpo.app.commands.runs import runs
from starpo.errors import UserError
from starpo.redaction import redact


class _Plain(click.Group):
    """A group whose mistakes end in one message and an interruption in the shell's status for it."""

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
        except UserError as error:
            raise click.ClickException(redact(str(error))) from error
        except (click.Abort, KeyboardInterrupt, EOFError):
            ctx.exit(130)


@click.group(cls=_Plain, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """StarPO runs on disk."""


for command in (runs, play, serve, champion, models):
    main.add_command(command)
