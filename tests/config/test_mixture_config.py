"""Parameters of environments: mixtures, their suites, and what belongs to a run's identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from starpo.app.parameters import merge
from starpo.app.preflight import _check_shares, check_environment
from starpo.config.environment import EnvironmentConfig
from starpo.config.identity import EXTENDABLE
from starpo.config.parameters import parse_parameters
from starpo.errors import UserError
from starpo.store.layout import base_policy_run

BASE = Path(__file__).resolve().parents[2] / "conf/base"
MIXTURE = [
    {"name": "bandit", "weight": 1},
    {"name": "frozen_lake", "label": "lake", "weight": 3, "arguments": {"size": 5}},
]


def raw(**over: Any) -> dict[str, Any]:
    """The project's own parameters with ``over`` on top."""
    tree: dict[str, Any] = {}
    for file in sorted(BASE.glob("parameters*.yml")):
        tree |= yaml.safe_load(file.read_text())
    merge(tree, over)
    return tree


def mixed(**environment: Any) -> dict[str, Any]:
    return raw(environment={"name": "both", "arguments": None, "mixture": MIXTURE} | environment)


def test_a_suite_without_environment_becomes_one_per_member() -> None:
    parameters = parse_parameters(mixed())
    evaluation = parameters.evaluation
    assert evaluation.final == ["test_bandit", "test_lake"]
    assert evaluation.periodic == ["validation_bandit", "validation_lake"]
    task = evaluation.task("test_lake", parameters.environment)
    assert (task.name, task.arguments, task.mixture) == ("frozen_lake", {"size": 5}, None)
    again = parse_parameters(parameters.model_dump(mode="json"))
    assert again == parameters, "resolving twice changes nothing"


def test_a_suite_with_an_environment_stays_as_it_is() -> None:
    tree = mixed()
    tree["evaluation"]["suites"]["far"] = {"environment": "sokoban", "split": "test", "prompts": 4}
    tree["evaluation"]["final"] = ["far", "test"]
    assert parse_parameters(tree).evaluation.final == ["far", "test_bandit", "test_lake"]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"arguments": {"size": 4}}, r"arguments = .* beside a mixture .* arguments: null"),
        (
            {"mixture": [MIXTURE[0], MIXTURE[0]]},
            "mixture holds 'bandit' more than once; give its members .*label",
        ),
        ({"mixture": [{"name": "bandit", "weight": 0}]}, r"mixture\.0\.weight"),
        ({"mixture": []}, r"environment\.mixture"),
        ({"workers": -1}, r"environment\.workers = -1"),
        ({"step_limit_seconds": 0}, r"environment\.step_limit_seconds = 0"),
        ({"start_limit_seconds": 0}, r"environment\.start_limit_seconds = 0"),
    ],
)
def test_bad_values_are_refused_with_their_key(environment: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_parameters(mixed(**environment))


def test_a_member_without_a_group_is_refused_before_any_work() -> None:
    tree = mixed(mixture=[MIXTURE[0], MIXTURE[1] | {"weight": 1000}])
    with pytest.raises(UserError, match=r"'bandit' with weight 1 gets none of rollout\.groups = 32 groups"):
        _check_shares(parse_parameters(tree))


def test_a_member_that_cannot_be_built_is_named_by_its_place() -> None:
    config = EnvironmentConfig(
        name="both",
        mixture=[MIXTURE[0], {"name": "chess", "weight": 1}],  # type: ignore[list-item]
    )
    with pytest.raises(UserError, match=r"environment\.mixture\.1: unknown environment 'chess'"):
        check_environment("environment", config)


def test_naming_another_environment_drops_the_mixture() -> None:
    tree = mixed()
    merge(tree, {"environment": {"name": "bandit"}})
    assert parse_parameters(tree).environment.mixture is None


def test_where_environments_run_is_no_part_of_the_run_s_identity() -> None:
    here, there = (parse_parameters(raw(environment={"workers": workers})) for workers in (0, 4))
    names = {base_policy_run(each.base_policy, each.environment, each.agent) for each in (here, there)}
    assert len(names) == 1
    for key in ("workers", "step_limit_seconds", "start_limit_seconds"):
        assert ("environment", key) in EXTENDABLE
    assert ("environment", "mixture") not in EXTENDABLE
