"""``starpo champion show | set | check``: the best policy of each environment."""

from __future__ import annotations

from pathlib import Path

import click

from starpo.app.commands.options import root_option, terminal


@click.group()
def champion() -> None:
    """The best policy of each environment."""


@champion.command()
@root_option
def show(root: Path) -> None:
    """What champion.json says."""
    from starpo.app.commands.scheduled_evaluation import show_champions  # noqa: PLC0415

    show_champions(terminal(), root)


@champion.command("set")
@click.argument("policy", metavar="RUN@ITERATION")
@click.option("--env", default="base", help="Kedro environment it is evaluated under (default: base).")
@root_option
def set_(policy: str, env: str, root: Path) -> None:
    """Evaluate a policy and make it the champion: its folder in champions/ and its record in champion.json."""
    from starpo.app.commands.scheduled_evaluation import set_champion  # noqa: PLC0415

    set_champion(terminal(), root, policy, env)


@champion.command()
@click.argument("environment", required=False)
@click.option(
    "--candidate",
    metavar="RUN@ITERATION",
    help="Policy that may become champion (default: that of the newest complete run like the champion's).",
)
@root_option
@click.pass_context
def check(ctx: click.Context, environment: str | None, candidate: str | None, root: Path) -> None:
    """Evaluate the champion again, of every environment if none is named: ends with status 3 on a significant
    drop, promotes a better candidate."""
    from starpo.app.commands.scheduled_evaluation import DROPPED, check_champions  # noqa: PLC0415

    if not check_champions(terminal(), root, environment, candidate=candidate):
        ctx.exit(DROPPED)
