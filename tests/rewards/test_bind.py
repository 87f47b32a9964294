"""A mistake in ``reward.terms`` is one sentence with its key; a term that fails says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import raised_message
from judged import trajectory, turn

from starpo.errors import UserError
from starpo.rewards.bind import bind_terms
from starpo.rewards.total import score

JUDGED = trajectory(turn(), turn(), iteration=3, group=1, member=2)
AT = "iteration 3, group 1, member 2: it "


def takes_everything(
    judged: Any, group: Any, *, words: tuple[str, ...], table: dict[str, list[int]], path: Path, **others: Any
) -> list[float]:
    assert (words, table, path, others) == (("a", "b"), {"x": [1]}, Path("c"), {"more": None})
    return [1.0] * len(judged)


def plain(judged: Any, group: Any, factor: float = 2.0) -> list[float]:
    return [factor] * len(judged)


def own_weight(judged: Any, group: Any, *, weight: float) -> list[float]:
    return []


def shortened(judged: Any, group: Any) -> list[float]:
    return [0.0]


def no_list(judged: Any, group: Any) -> float:
    return 1.0


def no_number(judged: Any, group: Any) -> list[Any]:
    return [0.0, "much"]


def not_finite(judged: Any, group: Any) -> list[float]:
    return [0.0, float("nan")]


def raises(judged: Any, group: Any) -> list[float]:
    return [judged.turns[0].info["price"]]


class Broken:
    def __init__(self, *, folder: Path | None = None, size: int = 1) -> None:
        if size > 1:
            raise ValueError("size 2 is too large")
        self.folder = folder

    def prepare(self, trajectories: Any) -> None:
        raise OSError("no such door")

    def __call__(self, judged: Any, group: Any) -> list[float]:
        return [0.0] * len(judged)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"format": {}}, "reward.terms.format: unknown reward term 'format'; known: action_validity, "),
        (
            {"format_penalty": {"size": 1.0}},
            "reward.terms.format_penalty.size: reward term 'format_penalty' has no parameter 'size'; it takes: "
            "penalty, weight",
        ),
        (
            {"format_penalty": {"penalty": "0.1"}},
            "reward.terms.format_penalty.penalty = '0.1': input should be a valid number; correct it",
        ),
        ({"format_penalty": {"penalty": True}}, "penalty = True: input should be a valid number"),
        ({"length": {"at_most": 1.5}}, "reward.terms.length.at_most = 1.5: input should be a valid integer"),
        ({"repetition": {"where": "here"}}, "where = 'here': input should be 'within', 'across' or 'both'"),
        ({"plan_agreement": {"actions": "Up"}}, "actions = 'Up': input should be a valid array"),
        ({"environment": {"weight": "2"}}, "reward.terms.environment.weight = '2': it must be a number"),
        (
            {"overlong": {"buffer": 3}},
            "reward.terms.overlong needs max_tokens; add reward.terms.overlong.max_tokens",
        ),
        ({"test_bind:own_weight": {}}, "its parameter 'weight' is every term's own factor"),
        ({"test_bind:plain": {"faktor": 1}}, "has no parameter 'faktor'; it takes: factor, weight"),
        (
            {"test_bind:plain": {"factor": []}},
            "reward.terms.test_bind:plain.factor = []: input should be a valid",
        ),
        ({"test_bind:Broken": {"folder": "x"}}, "has no parameter 'folder'; it takes: size, weight"),
        ({"test_bind:Broken": {"size": 2}}, "reward.terms.test_bind:Broken: size 2 is too large; correct"),
        ({"judge": {}}, "reward.terms.judge needs url and model and rubric"),
    ],
)
def test_a_mistake_in_the_configuration_names_its_key(terms, message):
    found = raised_message(UserError, lambda: bind_terms(terms))
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shortened", AT + "gave 1 values for 2 turns"),
        ("no_list", AT + "gave 1.0 in place of a list with one value per turn (2 here)"),
        ("no_number", AT + "gave 'much' for turn 1; give a finite number"),
        ("not_finite", AT + "gave nan for turn 1; give a finite number"),
        ("raises", AT + "raised KeyError: 'price'"),
    ],
)
def test_a_term_that_fails_is_named_with_the_trajectory(name, message):
    terms = bind_terms({f"test_bind:{name}": {}})
    found = raised_message(UserError, lambda: score(JUDGED, (), terms))
    assert found.startswith(f"reward.terms.test_bind:{name}, {message}")
    assert found.endswith("run again")
    assert "\n" not in found


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("format_penalty", {"penalty": -1.0}),
        ("overlong", {"max_tokens": 400, "buffer": 100, "penalty": -1.0}),
        ("overlong", {"max_tokens": 4, "buffer": 100}),
        ("length", {"at_least": 5, "at_most": 4}),
        ("repetition", {"words": 0}),
        ("grounding", {"bonus": -1.0}),
        ("plan_agreement", {"penalty": -1.0}),
        ("progress", {"gamma": 1.5}),
        ("progress", {"scale": 0.0}),
    ],
)
def test_a_value_out_of_range_is_refused(name, parameters):
    with pytest.raises(UserError, match=rf"reward.terms.{name}, .* ValueError: .*(must|needs)"):
        score(JUDGED, (), bind_terms({name: parameters}))


def test_parameters_are_any_value_and_arrive_as_the_function_annotates_them():
    given = {"words": ["a", "b"], "table": {"x": [1]}, "path": "c", "more": None}
    terms = bind_terms({"test_bind:takes_everything": given})
    assert score(JUDGED, (), terms).values["test_bind:takes_everything"].tolist() == [1, 1]


def test_a_class_gets_a_folder_of_its_own_and_its_preparation_is_named_where_it_fails(tmp_path):
    (term,) = bind_terms({"test_bind:Broken": {}}, tmp_path).values()
    assert isinstance(term.function, Broken)
    assert term.function.folder == tmp_path / "test_bind_Broken"
    with pytest.raises(
        UserError, match=r"reward.terms.test_bind:Broken: its method prepare raised OSError: no such"
    ):
        term.prepare([])
