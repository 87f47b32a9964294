"""The champion of each environment: a policy kept in Git, with the outcome of every prompt it played.

``champions/<environment>/`` holds the policy, weights in bfloat16, and ``champion.json`` what exactly these weights
achieved, so that every clone can tell whether code, data or machine changed it, and whether a candidate is better.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from starpo.config.kedro_command import kedro_run
from starpo.config.parameters import Parameters, parse_parameters
from starpo.errors import UserError
from starpo.evaluation.outcomes import Outcomes
from starpo.store.layout import RunPaths, base_policy_run, in_names, policy_name
from starpo.store.machine import Machine
from starpo.store.policies import Policy
from starpo.store.policy_state import PolicyState
from starpo.store.runs import RunRecord, check_name, list_runs

FILE = "champion.json"
FOLDER = "champions"
LIMIT = 20_000_000
"""Bytes of weights that Git is asked to keep; the embedded policies have below a million."""


class Champion(BaseModel):
    """A policy and what it achieved."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    """Run that trained it."""
    iteration: int
    """Iterations behind it."""
    env: str
    """Kedro environment (``kedro run --env=``) that it is evaluated under."""
    base: str
    """Name of the base policy of its run, which says task, harness and how training began."""
    sha256: str
    """Of all files in its folder, see ``folder_hash``."""
    machine: Machine
    """What it was evaluated on."""
    suites: dict[str, Outcomes]
    """By suite and temperature, such as ``test-t0_5``."""

    @property
    def source(self) -> str:
        """``RUN@ITERATION``."""
        return f"{self.run}@{self.iteration}"

    @property
    def command(self) -> str:
        """What records it anew."""
        return f"starpo champion set {self.source} --env={self.env}"


def read_champions(root: Path) -> dict[str, Champion]:
    """By environment; empty without a file. Raises ``UserError`` where the file is damaged."""
    path = root / FILE
    if not path.exists():
        return {}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return {name: Champion.model_validate(value) for name, value in raw.items()}
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is damaged ({reason}); restore it from Git: git checkout {FILE}") from None


def write_champion(root: Path, environment: str, champion: Champion) -> None:
    """Replace the environment's entry; the others stay."""
    champions = read_champions(root) | {environment: champion}
    raw = {name: champions[name].model_dump() for name in sorted(champions)}
    path = root / FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def champion_folder(root: Path, environment: str) -> Path:
    """Where the environment's champion is kept."""
    return root / FOLDER / check_name(in_names(environment))


def keep_policy(root: Path, environment: str, policy: Policy) -> str:
    """Put ``policy`` in the place of the environment's champion; returns the folder's hash."""
    folder = champion_folder(root, environment)
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    store_rounded(policy, new)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
    return folder_hash(folder)


def find_champion(root: Path, environment: str | None) -> Policy:
    """The champion's policy, checked to be the recorded one; None: the only champion there is.

    Raises:
        UserError: no champion, several and none named, no policy, or another one than recorded.
    """
    champions = read_champions(root)
    known = ", ".join(champions) or "none yet; name one: starpo champion set RUN@ITERATION"
    if environment is None:
        if len(champions) != 1:
            raise UserError(f"{FILE}: whose champion? Say --environment; there is: {known}")
        (environment,) = champions
    if environment not in champions:
        raise UserError(f"{root / FILE} names no champion for {environment!r}; there is: {known}")
    champion, folder = champions[environment], champion_folder(root, environment)
    restore = f"restore it from Git: git checkout {FILE} {folder.relative_to(root)}"
    if not folder.exists():
        raise UserError(f"{folder}: the champion's policy is not here; {restore}")
    if (found := folder_hash(folder)) != champion.sha256:
        raise UserError(
            f"{folder} has SHA-256 {found[:12]}…, {FILE} says {champion.sha256[:12]}…: this is not the champion; "
            f"{restore}. Or name another: starpo champion set RUN@ITERATION --env={champion.env}"
        )
    return Policy.open(folder)


def store_rounded(policy: Policy, folder: Path) -> None:
    """The policy without learner state and with weights in bfloat16, in the new folder ``folder``.

    Raises:
        UserError: the weights are pruned or unreadable, or more than ``LIMIT``.
    """
    import torch  # noqa: PLC0415 - only who names or checks champions needs it

    weights = policy.tensors("weights") or {}
    size = 2 * sum(tensor.numel() for tensor in weights.values())
    if size > LIMIT:
        raise UserError(
            f"{policy.directory}: {size / 1e6:.0f} MB in bfloat16, Git keeps champions up to {LIMIT / 1e6:.0f} MB. "
            f"Keep it with `dvc add`, and compare it by hand: {kedro_run('evaluate', None)} --params "
            "run.source=RUN@ITERATION,evaluation.against=RUN@ITERATION"
        )
    PolicyState(
        run=policy.manifest["run"],
        iteration=policy.iteration,
        policy_step=policy.step,
        status=policy.manifest["status"],
        counters=policy.counters,
        model_files=policy.model_directory,
        harness=policy.harness(),
        weights={name: tensor.to(torch.bfloat16) for name, tensor in weights.items()},
        weights_in=policy_name(policy.iteration),
    ).write(folder)


def folder_hash(folder: Path) -> str:
    """SHA-256 over names and contents of all files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def base_of(record: RunRecord) -> str:
    """Name of the base policy that the run's parameters give."""
    parameters = parse_parameters(record.parameters)
    return base_policy_run(parameters.base_policy, parameters.environment, parameters.agent)


def newest_rival(root: Path, champion: Champion) -> Policy | None:
    """Last policy of the newest complete run like the champion's; None: there is none.

    Like it: from the same base policy (so the same task and harness), of no study, and with at least as many
    iterations.
    """
    for record in reversed(list_runs(root)):
        if not record.trains or record.state != "finished":
            continue
        try:
            run: Parameters = parse_parameters(record.parameters)
            alike = base_of(record) == champion.base and run.run.iterations >= champion.iteration
            if alike and run.run.study is None:
                policy = Policy.open(RunPaths(root, record.name).policy(run.run.iterations))
                _ = policy.model_directory
                return policy
        except UserError:
            continue  # of another version, or its weights are pruned
    return None
