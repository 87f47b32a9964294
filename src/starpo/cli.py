"""``kedro run`` for this project: resumes by itself, speaks plainly, ends cleanly."""

from __future__ import annotations

import logging
import sys
import warnings
from importlib import resources
from pathlib import Path
from traceback import format_exc
from typing import Any

import click
from kedro.framework.cli.project import (
    CONF_SOURCE_HELP,
    FROM_INPUTS_HELP,
    FROM_NODES_HELP,
    NODE_ARG_HELP,
    PARAMS_ARG_HELP,
    TAG_ARG_HELP,
    TO_NODES_HELP,
    TO_OUTPUTS_HELP,
)
from kedro.framework.cli.utils import (
    CONTEXT_SETTINGS,
    env_option,
    split_node_names,
    split_string,
)
from kedro.framework.session import KedroSession
from kedro.runner import SequentialRunner

from starpo.app.kedro_internals import split_params
from starpo.app.mistakes import user_mistake
from starpo.config.kedro_command import check_env, kedro_run
from starpo.config.resolved import Resolved
from starpo.errors import UserError
from starpo.redaction import redact

logger = logging.getLogger(__name__)


@click.group(context_settings=CONTEXT_SETTINGS, name="starpo")
def cli() -> None:
    """Commands of this project."""


@cli.command()
@env_option
@click.option("--pipeline", "-p", "pipelines", multiple=True, help="Pipeline to run, such as train_starpo_s.")
@click.option(
    "--pipelines", "more_pipelines", default="", callback=split_string, help="The same, Kedro's newer name."
)
@click.option("--params", default="", callback=split_params, help=PARAMS_ARG_HELP)
@click.option("--tags", "-t", default="", callback=split_string, help=TAG_ARG_HELP)
@click.option("--nodes", "-n", "node_names", default="", callback=split_node_names, help=NODE_ARG_HELP)
@click.option("--from-nodes", default="", callback=split_node_names, help=FROM_NODES_HELP)
@click.option("--to-nodes", default="", callback=split_node_names, help=TO_NODES_HELP)
@click.option("--from-inputs", default="", callback=split_string, help=FROM_INPUTS_HELP)
@click.option("--to-outputs", default="", callback=split_string, help=TO_OUTPUTS_HELP)
@click.option("--conf-source", default=None, help=CONF_SOURCE_HELP)
@click.option(
    "--supervise",
    is_flag=True,
    help="Run in a process of its own, and start that again once where it hung (run.step_limit_seconds) or was killed.",
)
@click.option("--traceback", is_flag=True, help="Show the traceback of an error, also of a user's mistake.")
def run(
    env: str | None,
    params: dict[str, Any],
    conf_source: str | None,
    supervise: bool,
    traceback: bool,
    **selection: Any,
) -> None:
    """Run a pipeline. What is there already is kept: after an interruption the same command goes on."""
    if supervise:
        from starpo.app import supervisor  # noqa: PLC0415

        sys.exit(supervisor.supervise(sys.argv[1:]))
    names = [*selection.pop("pipelines"), *selection.pop("more_pipelines")] or ["train_starpo_s"]
    from starpo.app.terminal.interrupts import sigterm_interrupts  # noqa: PLC0415
    from starpo.app.terminal.quiet import redact_terminal  # noqa: PLC0415

    redact_terminal()
    warnings.filterwarnings("ignore")
    try:
        _check_names(names, env, Path(conf_source or "conf"))
        with (
            sigterm_interrupts(),
            KedroSession.create(env=env, conf_source=conf_source, runtime_params=params) as session,
        ):
            # Kedro's type of ``session`` is the abstract one, whose ``run`` takes nothing.
            session.run(  # type: ignore[call-arg]
                pipeline_names=names,
                runner=SequentialRunner(),
                # A report is about what is there now, so the last one does not stand for it.
                only_missing_outputs=names != ["report"],
                **selection,
            )
    except KeyboardInterrupt:
        _interrupt_hooks()
        click.secho(
            "\nInterrupted. Nothing written is lost: the same command goes on from here.",
            fg="yellow",
            err=True,
        )
        sys.exit(130)
    except Exception as error:
        mistake = user_mistake(error)
        if mistake is None or traceback:
            click.echo(redact(format_exc()), err=True)
        else:
            click.secho(f"Error: {redact(mistake)}", fg="red", err=True)
        sys.exit(1)
    from starpo import settings  # noqa: PLC0415

    _say_where_to_look(settings.run.resolved)


def _check_names(pipelines: list[str], env: str | None, conf: Path) -> None:
    """Kedro answers an unknown pipeline or environment with a traceback."""
    folders = resources.files("starpo.pipelines").iterdir()
    known = sorted(folder.name for folder in folders if (folder / "__init__.py").is_file())
    for name in pipelines:
        if name not in known:
            raise UserError(f"--pipeline={name}: there is no such pipeline; known: {', '.join(known)}")
    if env is not None and conf.is_dir():
        check_env(env, conf)


def _interrupt_hooks() -> None:
    """Tell the hooks, in the order in which they are called."""
    from kedro.framework.project import settings  # noqa: PLC0415

    for hook in reversed(settings.HOOKS):
        if hasattr(hook, "interrupted"):
            hook.interrupted()


#: Tables that a stage alone writes, as methods of an opened run; what trains has metrics.
_TABLES = {
    "evaluate": "evaluation_summary()",
    "rollout": "turns()",
    "reward": "scored()",
    "rescore": "scored()",
}


def _say_where_to_look(current: Resolved) -> None:
    from starpo.store import runs  # noqa: PLC0415
    from starpo.store.layout import Layer, RunPaths  # noqa: PLC0415

    pipeline = current.pipeline
    if pipeline == "base_policy":
        click.echo(f"Base policy: {RunPaths(Path(), current.names['base']).policy(0)}")
        return
    if pipeline == "report":
        folder = RunPaths(Path(), current.names["report"]).folder(Layer.REPORTING)
        click.echo(f"Report: {folder / 'report.html'}")
        return
    name = current.names["name"]
    record = runs.read_record(Path.cwd(), name)
    ended = (
        "stopped by itself before its last iteration; the reason stands above"
        if record.state == "stopped"
        else "is complete"
    )
    click.echo(f"\nRun {name} {ended}. Look further:")
    click.echo(f"  starpo runs show {name}      state, evaluations, disk use")
    click.echo("  make ui                      curves in MLflow, http://127.0.0.1:5000")
    table = _TABLES.get(pipeline, "metrics()")
    click.echo(f"  python -c \"import starpo; print(starpo.open_run('{name}').{table}.tail())\"")
    command = kedro_run(pipeline, current.env)
    if record.trains:
        click.echo(f"  {command} … --params run.iterations=N extends it, --params run.name=… starts another")
    elif current.source is not None:
        click.echo(
            f"  {command} … --params run.source=RUN@ITERATION takes another source than {current.source}"
        )
