"""What is done about an environment of a user's own that returns or says something wrong, in a run's own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from starpo.environments.base import TextEnvironment
from starpo.environments.contract import ContractError, check_environment, check_reset, check_step, plain_info
from starpo.environments.registry import Recipe
from starpo.environments.solvers import optimal_actions
from starpo.environments.splits import Split, draw_instance
from starpo.seeds import Purpose, SeedKey

INFO = {"success": False, "effective": True}
KEY = SeedKey(0, Purpose.INSTANCE, "train")


class Plain(TextEnvironment):
    """Nothing wrong with it."""

    rules, action_names, return_range = "Go.", ("Go", "Stay"), (-1.0, 1.0)

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        return f"start {instance.integers(1000)}", {"success": False}

    def _act(self, action: str) -> Any:
        return "on", 0.0, False, False, dict(INFO)


def changed(**attributes: Any) -> type[TextEnvironment]:
    return type("Odd", (Plain,), attributes)


def returning(value: Any) -> Callable[..., Any]:
    return lambda self, *given: value


WRONG_STEPS = {
    "nothing": (None, r"step result is None of type NoneType, expected a tuple \(observation"),
    "too few": (("on", 0.0), r"step result is \('on', 0.0\) of type tuple, expected a tuple \(observation"),
    "too many": (("on", 0.0, False, False, INFO, 1), "step result is .* of type tuple"),
    "a list": (["on", 0.0, False, False, INFO], "step result is .* of type list"),
    "a dictionary": ({"reward": 0.0}, "step result is .* of type dict"),
    "an array": (np.zeros(5), "step result is .* of type numpy.ndarray"),
    "a number": (3, "step result is 3 of type int"),
    "bytes": ((b"on", 0.0, False, False, INFO), "step observation is b'on' of type bytes, expected str"),
    "no text": ((None, 0.0, False, False, INFO), "step observation is None"),
    "half a pair": (("\ud800", 0.0, False, False, INFO), "step observation is .*surrogate"),
    "whole reward": (("on", 1, False, False, INFO), "step reward is 1 of type int, expected float"),
    "no reward": (("on", None, False, False, INFO), "step reward is None of type NoneType, expected float"),
    "short float": (("on", np.float32(1), False, False, INFO), "step reward is .* of type numpy.float32"),
    "not a number": (("on", float("nan"), False, False, INFO), "step reward is nan .* a finite float"),
    "infinite": (("on", float("-inf"), False, False, INFO), "step reward is -inf .* a finite float"),
    "numpy's truth": (("on", 0.0, np.bool_(True), False, INFO), "step terminated is .* of type numpy.bool"),
    "truth as number": (("on", 0.0, False, 0, INFO), "step truncated is 0 of type int, expected bool"),
    "array of truths": (("on", 0.0, np.array([True, False]), False, INFO), "step terminated is "),
    "no info": (("on", 0.0, False, False, None), "step info is None of type NoneType, expected dict"),
    "no success": (("on", 0.0, False, False, {"effective": True}), r"step info\['success'\] is None"),
    "no effect": (("on", 0.0, False, False, {"success": True}), r"step info\['effective'\] is None"),
}


@pytest.mark.parametrize("name", WRONG_STEPS)
def test_a_wrong_result_of_step_reaches_the_check_and_is_named(name: str) -> None:
    value, message = WRONG_STEPS[name]
    env = changed(_act=returning(value))()
    env.reset(seed=0)
    with pytest.raises(ContractError, match=rf"environment 'odd': {message}"):
        check_step("odd", env.step("Go"))
    with pytest.raises(ContractError, match=rf"environment 'Odd': {message}"):
        check_environment(env)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"reset result is None of type NoneType, expected a tuple \(observation, info\)"),
        ("start", "reset result is 'start' of type str"),
        (("start",), "reset result is .* of type tuple"),
        ((b"start", {"success": False}), "reset observation is b'start' of type bytes"),
        (("\udfff", {"success": False}), "reset observation is .*surrogate"),
        (("start", None), "reset info is None of type NoneType, expected dict"),
        (("start", {}), r"reset info\['success'\] is None"),
        (("start", {"success": 0}), r"reset info\['success'\] is 0 of type int, expected bool"),
    ],
)
def test_a_wrong_result_of_reset_is_named(value: Any, message: str) -> None:
    env = changed(_begin=returning(value))()
    with pytest.raises(ContractError, match=rf"environment 'odd': {message}"):
        check_reset("odd", env.reset(seed=0))


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("rules", None, "rules is None of type NoneType, expected str"),
        ("rules", 5, "rules is 5 of type int, expected str"),
        ("action_names", None, "action_names is None"),
        ("action_names", ["Go"], r"action_names is \['Go'\] of type list, expected a tuple of strings"),
        ("action_names", "Go", "action_names is 'Go' of type str"),
        ("action_names", (1, 2), r"action_names is \(1, 2\) of type tuple"),
        ("action_names", ("Go", "GO"), "action_names is .* differ by more than case"),
        ("return_range", None, "return_range is None"),
        ("return_range", (1.0, 0.0), "return_range is .* expected a tuple"),
        ("return_range", ("low", "high"), "return_range is .* expected a tuple"),
        ("return_range", (0.0, float("nan")), "return_range is .* expected a tuple"),
        ("action_cost", None, "action_cost is None"),
        ("action_cost", -0.1, "action_cost is -0.1 .* 0 or more"),
        ("action_cost", float("nan"), "action_cost is nan .* a finite number"),
    ],
)
def test_what_an_environment_says_about_itself_is_checked_when_it_is_built(
    attribute: str, value: Any, message: str
) -> None:
    odd = changed(**{attribute: value})
    with pytest.raises(ContractError, match=rf"environment 'mine': {message}"):
        Recipe("mine", odd, {}).build()
    assert Recipe("mine", Plain, {}).build().rules == "Go."


@pytest.mark.parametrize("missing", ["rules", "action_names", "return_range"])
def test_a_class_that_forgets_to_say_something_is_refused_by_name(missing: str) -> None:
    body = {
        name: value for name, value in vars(Plain).items() if name != missing and not name.startswith("__")
    }
    with pytest.raises(ContractError, match=rf"environment 'mine': {missing} is None"):
        Recipe("mine", type("Forgetful", (TextEnvironment,), body), {}).build()


def test_a_split_may_be_declared_by_its_name_and_nothing_else() -> None:
    assert (
        draw_instance(changed(declared_split=returning("train"))(), split=Split.TRAIN, key=KEY).attempt == 0
    )
    for value in ("dev", None, 3):
        odd = changed(declared_split=returning(value))()
        with pytest.raises(
            ContractError, match=r"'Odd': declared_split is .* one of train, validation, test"
        ):
            draw_instance(odd, split=Split.TRAIN, key=KEY)


@pytest.mark.parametrize("plan", [None, "Go", ("Go",), [1], {"Go": 1}])
def test_a_plan_of_the_wrong_type_is_named(plan: Any) -> None:
    odd = changed(optimal_actions=returning(plan))()
    odd.reset(seed=0)
    with pytest.raises(
        ContractError, match=r"environment 'Odd': optimal_actions' result is .* a list of action names"
    ):
        optimal_actions(odd)


def test_info_in_numpy_s_types_stays_what_it_is() -> None:
    info = {
        "score": np.float32(0.5),
        "count": np.int64(3),
        "seen": np.bool_(True),
        "cells": np.arange(3),
        "of": Plain,
    }
    plain = plain_info("mine", info)
    assert plain == {"score": 0.5, "count": 3, "seen": True, "cells": [0, 1, 2], "of": str(Plain)}
    assert type(plain["seen"]) is bool
    for odd in ({(1, 2): 3}, {1: 2, "b": 3}):
        with pytest.raises(ContractError, match=r"environment 'mine': step info cannot be written as JSON"):
            plain_info("mine", odd)


def test_a_start_that_depends_on_luck_is_found() -> None:
    odd = changed(_begin=lambda self, instance: (str(self.dynamics.random()), {"success": False}))
    with pytest.raises(
        ContractError, match=r"reset observation is .* the seed, and luck comes later, is the same"
    ):
        check_environment(odd())


def test_a_draw_from_anything_but_the_seeds_is_found() -> None:
    draws = np.random.default_rng(0)
    odd = changed(_act=lambda self, action: (f"{draws.random()}", 0.0, False, False, dict(INFO)))
    with pytest.raises(ContractError, match=r"step 0 of a trial is .* since seeds and actions are the same"):
        check_environment(odd())
    seeded = changed(_act=lambda self, action: (f"{self.dynamics.random()}", 0.0, False, False, dict(INFO)))
    check_environment(seeded())
