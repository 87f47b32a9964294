"""The champions evaluated again beside their records, and a better candidate promoted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from starpo.app.commands.named_policies import named_policy
from starpo.errors import UserError
from starpo.evaluation.champions import (
    Champion,
    Judgement,
    Outcomes,
    evaluated_outcomes,
    find_champion,
    judge,
    model_hash,
    read_champions,
    write_champion,
)
from starpo.store.layout import RunPaths, in_names
from starpo.store.policies import Policy
from starpo.store.runs import remove_run

DROPPED = 3
"""Exit status when the champion is worse than recorded."""


def show_champions(console: Console, root: Path) -> None:
    """Print what champion.json says."""
    champions = read_champions(root)
    if not champions:
        console.print("no champion yet: starpo champion set RUN@ITERATION")
    for environment, champion in champions.items():
        console.print(f"{environment}: {champion.source}, evaluated under --env={champion.env}", markup=False)
        for suite, outcomes in champion.suites.items():
            console.print(f"  {suite}: success {outcomes.success:.3f} of {outcomes.prompts}", markup=False)


def set_champion(console: Console, root: Path, name: str, env: str) -> None:
    """Evaluate the policy ``name`` under the Kedro environment ``env`` and make it the champion."""
    policy = named_policy(root, name)
    environment = policy.harness()["environment"]["name"]
    outcomes = _evaluate(root, policy, env, f"champion-{in_names(environment)}")
    _crown(console, root, environment, policy, env, outcomes)


def check_champions(
    console: Console, root: Path, environment: str | None, *, candidate: str | None, retrained: bool
) -> bool:
    """Evaluate champions against their records; False where one is significantly worse.

    Args:
        console: where the tables go.
        root: the project.
        environment: whose champion; None: all of them.
        candidate: the policy that may take a champion's place; None: the registry's candidate, if it has one.
        retrained: accept other weights under the champion's name.

    Raises:
        UserError: there is no champion, its weights are others, or an evaluation failed.
    """
    names = [environment] if environment else list(read_champions(root))
    if not names:
        raise UserError("champion.json names no champion; name one: starpo champion set RUN@ITERATION")
    return all([_check_one(console, root, name, candidate, retrained) for name in names])


def _check_one(
    console: Console, root: Path, environment: str, candidate: str | None, retrained: bool
) -> bool:
    """False on a significant drop."""
    policy = find_champion(root, environment, retrained=retrained)
    recorded = read_champions(root)[environment]
    fresh = _evaluate(root, policy, recorded.env, f"champion-{in_names(environment)}")
    judgements = judge(recorded.suites, fresh, recorded.command)
    console.print(_table(f"{environment}: champion {recorded.source}, recorded and now", judgements))
    if any(each.verdict == "worse" for each in judgements):
        console.print(f"{environment}: the champion is significantly worse than recorded", style="red")
        return False
    challenger = _challenger(root, environment, candidate)
    if challenger is None or model_hash(challenger.model_directory) == recorded.sha256:
        return True
    theirs = _evaluate(root, challenger, recorded.env, f"candidate-{in_names(environment)}")
    duel = judge(fresh, theirs, recorded.command)
    console.print(_table(f"{environment}: champion and candidate {challenger.identity}", duel))
    better = any(each.verdict == "better" for each in duel)
    if better and not any(each.verdict == "worse" for each in duel):
        _crown(console, root, environment, challenger, recorded.env, theirs)
    return True


def _challenger(root: Path, environment: str, candidate: str | None) -> Policy | None:
    if candidate is not None:
        policy = named_policy(root, candidate)
        return policy if policy.harness()["environment"]["name"] == environment else None
    try:
        return named_policy(root, "candidate", environment)
    except UserError:
        return None  # nothing registered: there is no challenger


def _evaluate(root: Path, policy: Policy, env: str, run: str) -> dict[str, Outcomes]:
    """All suites of the pipeline ``evaluate`` on ``policy``, in a process of its own, as the run ``run``."""
    if RunPaths(root, run).record.exists():
        remove_run(root, run)
    source = f"{policy.manifest['run']}@{policy.iteration}"
    command = [
        str(Path(sys.executable).with_name("kedro")),
        "run",
        f"--env={env}",
        "--pipeline=evaluate",
        f"--params=run.source={source},run.name={run}",
    ]
    finished = subprocess.run(command, cwd=root, env=os.environ | {"KEDRO_ENV": env}, check=False)
    if finished.returncode:
        log = RunPaths(root, run).log.relative_to(root)
        raise UserError(f"the evaluation of {source} failed; see above and {log}")
    return evaluated_outcomes(root, run, env)


def _crown(
    console: Console, root: Path, environment: str, policy: Policy, env: str, suites: dict[str, Outcomes]
) -> None:
    champion = Champion(
        run=policy.manifest["run"],
        iteration=policy.iteration,
        env=env,
        sha256=model_hash(policy.model_directory),
        suites=suites,
    )
    write_champion(root, environment, champion)
    _mirror_alias(root, environment, champion)
    console.print(f"{environment}: {champion.source} is the champion (champion.json)", style="green")


def _mirror_alias(root: Path, environment: str, champion: Champion) -> None:
    """Let the registry's alias follow the file, where the registry knows the policy."""
    from starpo.mirror.registry import CHAMPION, set_alias, version_of  # noqa: PLC0415
    from starpo.mirror.store_of_project import project_store  # noqa: PLC0415

    client = project_store(root).client
    version = version_of(client, environment, champion.run, champion.iteration)
    if version is not None:
        set_alias(client, environment, CHAMPION, version)


def _table(title: str, judgements: list[Judgement]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("suite")
    for name in ("before", "after", "difference", "95 % interval"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for each in judgements:
        table.add_row(
            each.suite,
            f"{each.before:.3f}",
            f"{each.after:.3f}",
            f"{each.difference:+.3f}",
            f"{each.low:+.3f} to {each.high:+.3f}",
            each.verdict,
        )
    return table
