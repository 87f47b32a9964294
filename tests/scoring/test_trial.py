"""Reward terms are tried before any work; what fails is a sentence, what is only away for now a warning."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
from builders import raised_message
from projects import SOURCE

from starpo.app.config_loader import ConfigLoader
from starpo.config.parameters import Parameters, parse_parameters
from starpo.errors import UserError
from starpo.rewards.trajectory import Trajectory
from starpo.scoring.trial import check_reward_terms
from starpo.settings import CONFIG_LOADER_ARGS


def parameters(terms: dict[str, Any], environment: dict[str, Any] | None = None) -> Parameters:
    loader = ConfigLoader(conf_source=str(SOURCE / "conf"), env="smoke", **CONFIG_LOADER_ARGS)
    config = copy.deepcopy(dict(loader["parameters"]))
    config["reward"] = {"terms": {"environment": {}} | terms}
    config["environment"] |= environment or {}
    return parse_parameters(config)


def refusal(terms: dict[str, Any], environment: dict[str, Any] | None = None) -> str:
    return raised_message(UserError, lambda: check_reward_terms(parameters(terms, environment)))


def of_arms(judged: Trajectory, group: object) -> list[float]:
    """Fails unless it is shown a real state."""
    return [float(len(turn.state.present)) for turn in judged.turns]


def needs_a_price(judged: Trajectory, group: object) -> list[float]:
    return [turn.info["price"] for turn in judged.turns]


def test_terms_are_tried_on_real_states() -> None:
    check_reward_terms(
        parameters({"test_trial:of_arms": {}, "grounding": {}, "progress": {}, "plan_agreement": {}})
    )
    for environment in ({"name": "frozen_lake"}, {"name": "sokoban"}):
        check_reward_terms(parameters({"grounding": {}, "progress": {}, "plan_agreement": {}}, environment))


def test_a_term_that_fails_is_named_before_any_work() -> None:
    message = refusal({"test_trial:needs_a_price": {}})
    assert message == (
        "reward.terms.test_trial:needs_a_price, on a trial trajectory of 'bandit': it raised KeyError: 'price'; mend "
        "it or its parameters and run again"
    )


@pytest.mark.parametrize("term", ["grounding", "plan_agreement", "progress"])
def test_a_term_that_no_environment_can_serve_is_refused(term: str) -> None:
    environment = {"name": "webshop_easy"}
    message = refusal({term: {}}, environment)
    assert f"reward.terms.{term}: no environment of this run has the method" in message
    assert f"reward.terms.{term} = null" in message
    mixture = [{"name": "webshop_easy", "weight": 1}, {"name": "bandit", "weight": 1}]
    check_reward_terms(parameters({term: {}}, {"mixture": mixture}))
    if term == "plan_agreement":
        check_reward_terms(parameters({term: {"actions": ["next page"]}}, environment))


def test_a_judge_that_does_not_answer_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rubric = tmp_path / "rubric.txt"
    rubric.write_text("Be fair.")
    judge = {"url": "http://127.0.0.1:9/v1", "model": "m", "rubric": str(rubric), "attempts": 1}
    with caplog.at_level(logging.WARNING, "starpo.scoring.trial"):
        check_reward_terms(parameters({"judge": judge}))
    (record,) = caplog.records
    assert record.getMessage().startswith("reward.terms.judge gives no score now (URLError: ")


def test_all_terms_off_is_refused() -> None:
    assert "reward: terms: all are switched off" in raised_message(
        UserError, lambda: parameters({"environment": None})
    )
