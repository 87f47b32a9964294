"""The champions evaluated again beside their records, and a better candidate promoted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from starpo.app.commands.named_policies import named_policy
from starpo.config.kedro_command import check_env
from starpo.errors import UserError
from starpo.evaluation.champions import (
    FILE,
    FOLDER,
    Champion,
    base_of,
    champion_folder,
    find_champion,
    folder_hash,
    keep_policy,
    newest_rival,
    read_champions,
    store_rounded,
    write_champion,
)
from starpo.evaluation.outcomes import Judgement, Outcomes, evaluated_outcomes, judge
from starpo.store.layout import RunPaths, in_names
from starpo.store.machine import Machine
from starpo.store.policies import Policy
from starpo.store.runs import read_record, remove_run, run_folders

DROPPED = 3
"""Exit status when the champion is worse than recorded."""


def show_champions(console: Console, root: Path) -> None:
    """Print what champion.json says."""
    champions = read_champions(root)
    if not champions:
        console.print("no champion yet: starpo champion set RUN@ITERATION")
    for environment, champion in champions.items():
        console.print(
            f"{environment}: {champion.source} in {champion_folder(root, environment).relative_to(root)}, "
            f"evaluated under --env={champion.env} on {champion.machine.kind}",
            markup=False,
        )
        for suite, outcomes in champion.suites.items():
            console.print(f"  {suite}: success {outcomes.success:.3f} of {outcomes.prompts}", markup=False)


def set_champion(console: Console, root: Path, name: str, env: str) -> None:
    """Evaluate the policy ``name`` under the Kedro environment ``env`` and make it the champion."""
    check_env(env, root / "conf")
    policy = named_policy(root, name)
    environment, base = _environment(policy), _base(root, policy)
    played = _evaluate(root, policy, env, _run("champion", environment))
    _crown(console, root, environment, policy, env, base, *played)


def check_champions(console: Console, root: Path, environment: str | None, *, candidate: str | None) -> bool:
    """Evaluate champions against their records; False where one is significantly worse.

    Args:
        console: where the tables go.
        root: the project.
        environment: whose champion; None: all of them.
        candidate: the policy that may take a champion's place; None: that of the newest complete run like the
            champion's, if there is one.

    Raises:
        UserError: there is no champion, its policy is another, an evaluation failed, or the candidate plays an
            environment without a champion.
    """
    names = [environment] if environment else list(read_champions(root))
    if not names:
        raise UserError(f"{FILE} names no champion; name one: starpo champion set RUN@ITERATION")
    named = named_policy(root, candidate) if candidate else None
    if named is not None and _environment(named) not in names:
        raise UserError(
            f"{candidate} plays {_environment(named)}, the champions that are checked play {', '.join(names)}; "
            f"make it the first of its environment: starpo champion set {candidate}"
        )
    return all([_check_one(console, root, name, named) for name in names])


def _check_one(console: Console, root: Path, environment: str, named: Policy | None) -> bool:
    """False on a significant drop."""
    policy = find_champion(root, environment)
    recorded = read_champions(root)[environment]
    fresh, machine = _evaluate(root, policy, recorded.env, _run("champion", environment))
    judgements = judge(recorded.suites, fresh, recorded.command)
    console.print(_table(f"{environment}: champion {recorded.source}, recorded and now", judgements))
    console.print(_equality(judgements, recorded.machine.differences(machine)), markup=False)
    if any(each.verdict == "worse" for each in judgements):
        console.print(f"{environment}: the champion is significantly worse than recorded", style="red")
        return False
    rival = newest_rival(root, recorded) if named is None else named
    if rival is None or _environment(rival) != environment or _is_kept(rival, recorded):
        return True
    base = _base(root, rival)
    theirs, machine = _evaluate(root, rival, recorded.env, _run("candidate", environment))
    duel = judge(fresh, theirs, recorded.command)
    console.print(_table(f"{environment}: champion and candidate {rival.identity}", duel))
    if any(each.verdict == "better" for each in duel) and all(each.verdict != "worse" for each in duel):
        _crown(console, root, environment, rival, recorded.env, base, theirs, machine)
    return True


def _environment(policy: Policy) -> str:
    return str(policy.harness()["environment"]["name"])


def _base(root: Path, policy: Policy) -> str:
    """The base policy of the policy's run, asked for before any work."""
    return base_of(read_record(root, policy.manifest["run"]))


def _run(role: str, environment: str) -> str:
    return f"{role}-{in_names(environment)}"


def _is_kept(policy: Policy, champion: Champion) -> bool:
    """Whether the policy, rounded, is the champion itself."""
    with tempfile.TemporaryDirectory(prefix="starpo-candidate-") as place:
        store_rounded(policy, Path(place) / "policy")
        return folder_hash(Path(place) / "policy") == champion.sha256


def _evaluate(root: Path, policy: Policy, env: str, run: str) -> tuple[dict[str, Outcomes], Machine]:
    """All suites of the pipeline ``evaluate`` on ``policy`` as Git keeps it, in a process of its own.

    Returns the outcomes of the run ``run`` and what they were played on.
    """
    source = f"{run}-policy"
    for old in (run, source):
        if run_folders(root, old):
            remove_run(root, old)
    store_rounded(policy, RunPaths(root, source).policy(policy.iteration))
    command = [
        str(Path(sys.executable).with_name("kedro")),
        "run",
        f"--env={env}",
        "--pipeline=evaluate",
        f"--params=run.source={source}@{policy.iteration},run.name={run}",
    ]
    try:
        finished = subprocess.run(command, cwd=root, env=os.environ | {"KEDRO_ENV": env}, check=False)
    finally:
        remove_run(root, source)  # by default the newest policy is what a stage alone works on
    if finished.returncode:
        log = RunPaths(root, run).log.relative_to(root)
        raise UserError(f"the evaluation of {policy.identity} failed; see above and {log}")
    return evaluated_outcomes(root, run, env), read_record(root, run).machines[-1]


def _crown(
    console: Console,
    root: Path,
    environment: str,
    policy: Policy,
    env: str,
    base: str,
    suites: dict[str, Outcomes],
    machine: Machine,
) -> None:
    champion = Champion(
        run=policy.manifest["run"],
        iteration=policy.iteration,
        env=env,
        base=base,
        sha256=keep_policy(root, environment, policy),
        machine=machine,
        suites=suites,
    )
    write_champion(root, environment, champion)
    _mirror_alias(root, environment, champion)
    console.print(
        f"{environment}: {champion.source} is the champion; commit {FILE} and {FOLDER}/", style="green"
    )


def _mirror_alias(root: Path, environment: str, champion: Champion) -> None:
    """Let the registry's alias follow the file, where the registry knows the policy."""
    from starpo.mirror.registry import CHAMPION, set_alias, version_of  # noqa: PLC0415
    from starpo.mirror.store_of_project import project_store  # noqa: PLC0415

    client = project_store(root).client
    version = version_of(client, environment, champion.run, champion.iteration)
    if version is not None:
        set_alias(client, environment, CHAMPION, version)


def _equality(judgements: list[Judgement], differences: list[str]) -> str:
    """Whether the champion played as recorded, and what may be the reason if not."""
    changed, played = sum(each.changed for each in judgements), "the same machine and libraries"
    if differences:
        played = f"another machine or other libraries ({', '.join(differences)})"
    if not changed:
        return f"every trajectory ends as recorded, on {played}"
    reason = "rounding may be the reason" if differences else "code or data must have changed"
    return f"{changed} trajectories end otherwise than recorded, on {played}: {reason}"


def _table(title: str, judgements: list[Judgement]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("suite")
    for name in ("before", "after", "difference", "95 % interval", "changed"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for each in judgements:
        table.add_row(
            each.suite,
            f"{each.before:.3f}",
            f"{each.after:.3f}",
            f"{each.difference:+.3f}",
            f"{each.low:+.3f} to {each.high:+.3f}",
            str(each.changed),
            each.verdict,
        )
    return table
