"""``python -m starpo.app.expected_names``: that a stage of DVC names what its parameters give, before any work.

Names of base policies hold a hash of parameters, which DVC's templates cannot compute; a stage whose outs are named
otherwise would put other data under its name into ``dvc.lock``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kedro.framework.startup import bootstrap_project
from rich.console import Console

from starpo.app.parameters import configured_parameters
from starpo.config.resolved import Resolved
from starpo.errors import UserError
from starpo.store.layout import comparison_name


def check_names(
    resolved: Resolved, *, bases: list[str], run: str | None = None, comparison: str | None = None
) -> None:
    """Refuse names that the parameters do not give.

    Args:
        resolved: the parameters.
        bases: names of base policies, one of which they give.
        run: name of the run; None: of no matter.
        comparison: name of the comparison of its first with its last policy; None: of no matter.

    Raises:
        UserError: another name.
    """
    last = comparison_name(resolved.parameters.run.iterations)
    for what, said, given in (
        ("base policy", bases, resolved.names["base"]),
        ("run", [run or resolved.names["name"]], resolved.names["name"]),
        ("comparison", [comparison or last], last),
    ):
        if given not in said:
            raise UserError(
                f"dvc.yaml names the {what} {' or '.join(said)}, the parameters give {given}: nothing was done; "
                "correct the name in dvc.yaml, or the parameters"
            )


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; the working directory is the project's folder."""
    parser = argparse.ArgumentParser(
        prog="python -m starpo.app.expected_names", description="Names in dvc.yaml against parameters"
    )
    parser.add_argument("--env", help="Kedro environment")
    parser.add_argument("--pipeline", default="train_starpo_s", help="whose preset counts")
    parser.add_argument("--base", required=True, nargs="+", help="base policies, one of which it is")
    parser.add_argument("--run", help="name of the run")
    parser.add_argument("--comparison", help="name of the comparison of the first with the last policy")
    options = parser.parse_args(argv)
    try:
        bootstrap_project(Path.cwd())
        resolved = configured_parameters(options.pipeline, options.env)
        check_names(resolved, bases=options.base, run=options.run, comparison=options.comparison)
    except UserError as error:
        Console(stderr=True, highlight=False).print(f"error: {error}", markup=False, soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
