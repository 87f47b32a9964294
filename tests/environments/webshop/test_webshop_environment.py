"""The environment and its oracle, on generated catalogues."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from starpo.environments.contract import check_environment
from starpo.environments.records import Limits
from starpo.environments.registry import make
from starpo.environments.solvers import best_play, optimal_actions
from starpo.environments.splits import Split, draw_instance, split_of_environment
from starpo.environments.webshop import oracle
from starpo.environments.webshop.actions import parse_action
from starpo.environments.webshop.catalogue import CatalogueBuilder
from starpo.environments.webshop.environment import HINT, WebShop
from starpo.environments.webshop.generator import MAX_EASY, Difficulty, generate_catalogue, product_id
from starpo.environments.webshop.goals import Wish
from starpo.environments.webshop.oracle import best_reward, optimal_actions_for, query_of
from starpo.environments.webshop.product import product_of
from starpo.environments.webshop.reward import score_purchase
from starpo.seeds import Purpose, SeedKey

NAMES = ("webshop", "webshop_easy")
seeds = st.integers(0, 2**63 - 1)

PLAY = """
from numpy.random import default_rng
from starpo.environments.registry import make
for name in ("webshop", "webshop_easy"):
    env = make(name)
    draw = default_rng(0)
    for seed in range(6):
        print(env.reset(seed=seed), env.declared_split())
        print(env.step("search[<r>]"))
        for _ in range(8):
            result = env.step(env.random_action(draw))
            print(result)
            if result[2]:
                break
"""


def played(env, draw, turns):
    """Random actions up to ``turns``; True if the episode ended."""
    return any(env.step(env.random_action(draw))[2] for _ in range(turns))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_shop_keeps_the_contract(name, seed):
    check_environment(make(name), name=name, seed=seed)


def test_other_processes_see_the_same_shop_whatever_the_hash_seed():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PLAY],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "12345")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") > 40


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (" search[Red Mug] ", "search[red mug]"),
        ("CLICK[Buy Now]", "click[buy now]"),
        ("click[navy | white]", "click[navy | white]"),
        ("search[]", None),
        ("search", None),
        ("buy[x]", None),
        ("search[a][b]", None),
        ("", None),
    ],
)
def test_well_formed_actions_are_matched_loosely(text, action):
    assert make("webshop_easy").match_action(text) == action


@given(st.text())
def test_any_text_is_an_action_or_does_nothing(text):
    env = make("webshop_easy")
    env.reset(seed=0)
    before = env.session.mark()
    observation, reward, done, _, info = env.step(text)
    assert not done
    assert reward == 0
    assert env.goal.instruction in observation
    if parse_action(text) is None:
        assert (info["valid"], info["effective"]) == (False, False)
        assert env.session.mark() == before


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
def test_every_listed_action_is_valid_and_nothing_breaks_in_random_play(name, seed):
    env = make(name)
    env.reset(seed=seed)
    draw = np.random.default_rng(seed)
    for _ in range(25):
        action = env.random_action(draw)
        assert env.match_action(action) == action
        observation, reward, done, _, info = env.step(action)
        assert info["valid"]
        assert reward == info["score"]
        assert info["success"] == (info["score"] == 1)
        if done:
            assert env.possible_actions == ()
            break
        assert f"Instruction: [SEP] {env.goal.instruction}" in observation


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
@examples(0.25)
def test_the_plan_earns_the_best_reward_from_the_start_and_from_anywhere(name, seed):
    env = make(name)
    env.reset(seed=seed)
    best = best_reward(env)
    assert best == 1.0
    for turns in (0, 1, 2, 4, 6):
        env.reset(seed=seed)
        draw = np.random.default_rng(seed)
        if played(env, draw, turns):
            assert optimal_actions(env) == []
            continue
        plan = optimal_actions(env)
        assert best_play(env, Limits(len(plan), 1, len(plan))).value == best
        results = [env.step(action) for action in plan]
        assert [done for _, _, done, _, _ in results] == [False] * (len(plan) - 1) + [True]
        assert results[-1][1] == best
        assert all(info["valid"] for *_, info in results)


@pytest.mark.parametrize("difficulty", list(Difficulty))
def test_the_best_reward_is_that_of_trying_all_products_with_all_options(difficulty):
    env = make("webshop", products=24, difficulty=difficulty.value, seed=3)
    rng = np.random.default_rng(0)
    for _ in range(12):
        env.reset(seed=int(rng.integers(1 << 40)))
        tried = max(
            score_purchase(product, [value for value in chosen if value], env.goal).total
            for product in env.catalogue.products
            for chosen in itertools.product(*((None, *values) for values in product.options.values()))
        )
        assert best_reward(env) == tried


def test_goals_that_their_own_product_misses_are_still_solved_exactly():
    # "sandalwood" counts as the colour "sand", which the wanted pair (scent, sandalwood) does not contain.
    env = make("webshop_easy")
    goal = env.catalogue.goals[0]
    missed = type(goal)(
        **{
            **{name: getattr(goal, name) for name in goal.__slots__},
            "options": (("scent", "sandalwood"),),
            "price_limit": 1.0,
        }
    )
    env.reset(seed=0)
    env.begin_goal(missed)
    assert best_reward(env) == pytest.approx(1 / 3)
    for action in optimal_actions_for(env):
        _, reward, *_ = env.step(action)
    assert reward == best_reward(env)


def test_of_a_huge_catalogue_a_perfect_own_product_is_enough(monkeypatch):
    monkeypatch.setattr(oracle, "MAX_SCANNED", 10)
    monkeypatch.setattr(oracle, "_same_type_candidates", lambda *_: pytest.fail("scanned"))
    env = make("webshop", products=40, seed=9)
    env.reset(seed=0)
    assert best_reward(env) == 1.0


def test_a_wrong_option_is_corrected_and_a_sub_page_is_left():
    env = make("webshop_easy")
    env.reset(seed=4)
    search, product, colour, buy = optimal_actions(env)
    wrong = next(c for c in ("click[red]", "click[blue]") if c != colour)
    for action in (search, product, wrong, "click[features]"):
        env.step(action)
    assert optimal_actions(env) == ["click[< prev]", colour, buy]


def test_members_share_the_goal_and_only_random_lists_differ():
    env = make("webshop")
    first, second = (env.reset(seed=5, options={"dynamics_seed": luck})[0] for luck in (1, 2))
    assert first == second
    lists = set()
    for luck in (1, 1, 2):
        env.reset(seed=5, options={"dynamics_seed": luck})
        lists.add(env.step("search[<r>]")[0])
    assert len(lists) == 2


def test_lists_by_attribute_department_and_query_hold_all_their_products():
    env = make("webshop")
    env.reset(seed=0)
    products = env.catalogue.products
    asked = products[0]
    for query, members in (
        (f"<q> {asked.query}", {p.id for p in products if p.query == asked.query}),
        (f"<c> {asked.category}", {p.id for p in products if p.category == asked.category}),
        (f"<a> {asked.attributes[0]}", {p.id for p in products if asked.attributes[0] in p.attributes}),
    ):
        env.step(f"search[{query}]")
        assert {products[at].id for at in env.session.hits} == members
    env.step("search[<c>]")
    assert env.session.hits == ()


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_disjoint_in_instructions_and_follow_the_goal_not_the_view(name):
    plain, rich = make(name), make(name, hints=True, list_actions=True)
    found = {split: set() for split in Split}
    for number in range(150):
        for split in Split:
            key = SeedKey(0, Purpose.INSTANCE, split.value, group=number)
            instance = draw_instance(plain, split=split, key=key)
            found[split].add(plain.goal.instruction)
            observation, _ = rich.reset(seed=instance.seed)
            assert rich.goal == plain.goal
            assert split_of_environment(rich, observation) is split
    assert not found[Split.TRAIN] & found[Split.VALIDATION]
    assert not found[Split.TRAIN] & found[Split.TEST]
    assert not found[Split.VALIDATION] & found[Split.TEST]


def test_switches_add_lines_and_make_the_reward_binary_but_keep_the_score():
    env = make("webshop_easy", hints=True, list_actions=True, binary_reward=True)
    observation, _ = env.reset(seed=0)
    assert observation.endswith(f"{HINT}\nPossible actions: search[<content>]")
    search, product, colour, buy = optimal_actions(env)
    wrong = next(c for c in ("click[red]", "click[blue]") if c != colour)
    env.step(search)
    observation, *_ = env.step(product)
    assert observation.endswith("click[pink]")
    env.step(wrong)
    observation, reward, done, _, info = env.step(buy)
    assert (reward, done, info["success"]) == (0.0, True, False)
    assert info["score"] == pytest.approx(2 / 3)
    assert HINT not in observation


def test_goals_are_drawn_uniformly_or_by_the_rarity_of_their_attributes():
    builder = CatalogueBuilder()
    plain = {"name": "oak mug", "query": "mugs", "category": "c", "product_category": "a \u203a b"}
    sizes = {"size": [{"value": each} for each in "abcd"]}
    for number, (options, attribute) in enumerate((({}, "rare"), (sizes, "common"))):
        record = {**plain, "asin": f"B{number}", "customization_options": options}
        builder.add(product_of(record, (attribute,)), [Wish("find oak mug", (attribute,))])
    catalogue = builder.build()
    assert [catalogue.goals[number].weight for number in range(5)] == [1.0, 0.25, 0.25, 0.25, 0.25]
    for weighted, share in ((False, 1 / 5), (True, 1 / 2)):
        env = WebShop(catalogue=catalogue, weighted_goals=weighted)
        rare = 0
        for seed in range(1000):
            env.reset(seed=seed)
            rare += env.goal.attributes == ("rare",)
        assert rare / 1000 == pytest.approx(share, abs=0.05)


def test_a_copy_in_mid_session_goes_its_own_way_in_the_same_shop():
    env = make("webshop_easy")
    env.reset(seed=0)
    env.step(optimal_actions(env)[0])
    other = copy.deepcopy(env)
    assert other.catalogue is env.catalogue
    for action in optimal_actions(other):
        *_, info = other.step(action)
    assert info["success"]
    assert env.session.kind == "results"


def test_instances_share_one_catalogue_and_arguments_choose_another():
    assert make("webshop").catalogue is make("webshop", hints=True).catalogue
    assert make("webshop", seed=1).catalogue.products[0] != make("webshop").catalogue.products[0]
    people = make("webshop", goals="human")
    people.reset(seed=0)
    assert len(people.catalogue.goals) == 1000
    assert all(name is None for name, _ in people.goal.options)


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_generated_catalogues_have_distinct_ids_and_goals_their_product_fulfils(goals):
    catalogue = generate_catalogue(300, 5, Difficulty.HARD, goals)
    assert len({product.id for product in catalogue.products}) == 300
    assert len({product.category for product in catalogue.products}) == 5
    for number in range(0, len(catalogue.goals), 1 if goals == "human" else 97):
        goal = catalogue.goals[number]
        own = catalogue.products[catalogue.position(goal.product_id)]
        values = [value for _, value in goal.options]
        assert score_purchase(own, values, goal).total == 1.0
        assert query_of(goal)
    assert len({product_id(number) for number in range(50_000)}) == 50_000


def test_the_easy_shop_has_one_right_product_on_its_first_page():
    env = make("webshop_easy")
    goals = env.catalogue.goals
    assert (len(env.catalogue.products), len(goals)) == (48, 288)
    env.reset(seed=0)
    for number in range(len(goals)):
        env.begin_goal(goals[number])
        plan = optimal_actions_for(env)
        assert len(plan) == 4
        assert plan[0] == f"search[{goals[number].title}]"
        env.step(plan[0])
        assert env.possible_actions[1 + ("click[next >]" in env.possible_actions)] == plan[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"difficulty": "trivial"}, "difficulty is 'trivial', allowed: easy, normal, hard"),
        ({"goals": "both"}, "goals is 'both', allowed: synthetic, human"),
        ({"page_size": 0}, "page_size is 0, allowed: whole numbers 1 to 50"),
        ({"products": 0}, "products is 0, allowed"),
        ({"products": 1_200_001}, "products is 1200001, allowed in generated catalogues: 1 to 1200000"),
        ({"products": float("nan"), "path": "somewhere"}, "products is nan, allowed: whole numbers from 1"),
        ({"path": 5}, "path is 5, allowed: a file or folder"),
        ({"difficulty": "easy", "products": MAX_EASY + 1}, f"allowed for easy catalogues: 1 to {MAX_EASY}"),
        ({"difficulty": "easy", "products": 9, "goals": "human"}, "allowed for easy catalogues: synthetic"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make("webshop", **arguments)
