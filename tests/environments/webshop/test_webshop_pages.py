"""Recorded browsing sessions, step by step, with the deliberate differences as rules."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from webshop_golden import recorded_goal, recorded_products, recorded_shop

from starpo.environments.webshop.goals import combination_count, nth_combination, price_limit
from starpo.environments.webshop.pages import PAGE_SIZE, OptionValue, item_page
from starpo.environments.webshop.product import NO_LIMIT, RecordError, prices_of, product_of

PAGES = {
    "": "search",
    "search_results": "results",
    "item_page": "item",
    "item_sub_page": "sub_page",
    "done": "done",
}
NEXT_BUTTON, NEXT_CLICK = " [SEP] Next >", "click[next >]"


def page_and_total(observation):
    """(page number, hits) of a results page, else None."""
    found = re.search(r"Page (\d+) \(Total results: (\d+)\)", observation)
    return None if found is None else (int(found[1]), int(found[2]))


def last_page(observation):
    page = page_and_total(observation)
    return page is not None and page[0] * PAGE_SIZE >= page[1]


def past_the_end(observation):
    page = page_and_total(observation)
    return page is not None and page[0] > 1 and (page[0] - 1) * PAGE_SIZE >= page[1]


def expected(step, shown, chosen, seen):
    """(observation, possible actions, valid, effective) of a recorded step, with the documented differences."""
    observation, available = step["observation"], step["available"]
    valid, effective = step["valid"], step["effective"]
    if step["action"] == "search[]" and valid:
        valid = False  # what is no action is not valid
        seen["empty search"] += 1
    elif not valid and (effective or step["action"].startswith("search[")):
        valid = (
            True  # what acts is valid, from a page without a box or in letters that the page does not list
        )
        seen["acts unlisted"] += 1
    if isinstance(shown, OptionValue):
        effective = chosen.get(shown.option) != shown.value  # choosing has an effect
        seen["option chosen"] += effective
    if last_page(observation):
        observation = observation.replace(NEXT_BUTTON, "", 1)  # no next page after the last hit
        available = [each for each in available if each != NEXT_CLICK]
        seen["no next button"] += 1
    return observation, sorted(available), valid, effective


def play(env, script, seen):
    """Play a recorded session and compare every step; counts steps and differences in ``seen``."""
    before, over = script["start"]["observation"], False
    for step in script["steps"]:
        seen["steps"] += 1
        action = step["action"]
        if over:
            # The episode has ended, where the recording plays on.
            with pytest.raises(RuntimeError, match="after the episode ended"):
                env.step(action)
            seen["after the purchase"] += 1
            continue
        if past_the_end(before) and action in (NEXT_CLICK, "click[< prev]"):
            # Back from a page that does not exist here: the last one was never left.
            seen["back from past the end"] += 1
            before = step["observation"]
            continue
        shown, chosen = env._page.targets.get(action[len("click[") : -1].lower()), dict(env.session.options)
        observation, reward, over, _, info = env.step(action)
        before = step["observation"]
        if past_the_end(before):
            assert (info["valid"], info["effective"], reward) == (False, False, step["reward"])
            seen["next past the end"] += 1
            continue
        theirs, available, valid, effective = expected(step, shown, chosen, seen)
        if over:
            assert observation.endswith(f"Your score (min 0.0, max 1.0): {step['reward']}")
        else:
            assert observation == theirs
        assert sorted(env.possible_actions) == available
        assert (reward, over) == (step["reward"], step["done"])
        assert (info["valid"], info["effective"]) == (valid, effective), action
        assert (info["success"], info["page"]) == (bool(step["success"]), PAGES[step["page"]])
        seen["compared"] += 1


def test_recorded_sessions_agree_but_for_the_documented_differences(golden):
    data = golden("webshop_pages.json")
    products = recorded_products(data)
    env = recorded_shop(data)
    seen = Counter()
    for script in data["scripts"]:
        env.reset(seed=0)
        observation, _ = env.begin_goal(recorded_goal(data["goals"][script["goal_index"]], products))
        assert observation == script["start"]["observation"]
        assert list(env.possible_actions) == script["start"]["available"]
        play(env, script, seen)
    assert seen["compared"] > seen["steps"] * 0.8, seen
    assert seen["steps"] >= 30


def test_a_recorded_session_is_the_same_with_labels_as_the_pages_print_them(golden):
    data = golden("webshop_pages.json")
    script = data["scripts"][0]
    goal = recorded_goal(data["goals"][script["goal_index"]], recorded_products(data))
    printed, listed = recorded_shop(data), recorded_shop(data)
    for env in (printed, listed):
        env.reset(seed=0)
        env.begin_goal(goal)
    back = ["click[Back to Search]", "search[SHIRT]"]
    actions = [step["action"].replace("click[b0", "click[B0") for step in script["steps"]]
    for action in [*actions[:2], *back, *actions]:
        result = printed.step(action)
        assert result == listed.step(action.lower())
        assert result[4]["valid"]


def test_the_name_of_an_action_counts_by_its_letters_as_on_the_server_and_an_answer_is_put_into_them(golden):
    env = recorded_shop(golden("webshop_pages.json"))
    env.reset(seed=0)
    env.step("search[shirt]")
    assert env.step("Click[Back to Search]")[4]["valid"] is False
    assert env.match_action("Click[Back to Search]") == "click[back to search]"
    assert env.step("click[Back to Search]")[4]["page"] == "search"


def test_recorded_prices_labels_and_options_are_reproduced(golden):
    data = golden("webshop_pages.json")
    for item in data["made_up_items"]:
        product = product_of(item, ())
        name = product.id
        assert product.price_label == data["price_label"][name]
        assert {option: list(values) for option, values in product.options.items()} == data["options"][name]
        low, *high = data["pricing"][name]
        assert low <= product.price <= (high[0] if high else low)
        # Difference: a price range is settled by the product's id, not by an unseeded draw.
        assert product == product_of(item, ())


def test_goals_are_the_recorded_ones_up_to_the_drawn_price_limit(golden):
    data = golden("webshop_pages.json")
    ours = recorded_shop(data).catalogue.goals
    limits = {each: [] for each in ("ours", "theirs")}
    unlike = re.compile(r"(, and price lower than )\d+")

    def content(asin, options, instruction, attributes, weight):
        return asin, tuple(options), unlike.sub(r"\1", instruction), tuple(attributes), round(weight, 12)

    mine = Counter()
    for number in range(len(ours)):
        goal = ours[number]
        mine[content(goal.product_id, goal.options, goal.instruction, goal.attributes, goal.weight)] += 1
        limits["ours"].append(goal.price_limit)
        position = next(p for p in recorded_products(data) if p.id == goal.product_id)
        assert goal.price_limit == price_limit(position.price, goal.product_id)
    theirs = Counter()
    for goal in data["goals"]:
        options = tuple(goal["goal_options"].items())
        theirs[content(goal["asin"], options, goal["instruction"], goal["attributes"], goal["weight"])] += 1
        limits["theirs"].append(goal["price_upper"])
    assert mine == theirs
    assert {NO_LIMIT, 120.0, 130.0, 140.0} <= set(limits["theirs"])
    assert {NO_LIMIT} < set(limits["ours"])
    assert {each for each in limits["ours"] if 100 < each < NO_LIMIT} <= {120.0, 130.0, 140.0}


def test_price_limits_are_the_larger_of_two_of_the_next_four_tens():
    drawn = Counter(price_limit(25.0, f"B{number}") for number in range(3000))
    assert set(drawn) == {40.0, 50.0, 60.0}
    for limit, share in ((40.0, 1 / 6), (50.0, 2 / 6), (60.0, 3 / 6)):
        assert drawn[limit] / 3000 == pytest.approx(share, abs=0.03)
    assert price_limit(975.0, "B0") == 990.0  # 980 and 990 are left
    assert price_limit(980.0, "B0") == NO_LIMIT
    assert price_limit(10.0, "B0") > 20


def test_combinations_are_numbered_like_a_product_over_sorted_names():
    options = {"size": ("s", "l"), "color": ("red", "tan", "teal")}
    assert combination_count(options) == 6
    assert combination_count({}) == 1
    assert combination_count({"size": ()}) == 0
    listed = [nth_combination(options, number) for number in range(6)]
    assert listed[0] == (("color", "red"), ("size", "s"))
    assert listed[-1] == (("color", "teal"), ("size", "l"))
    assert len(set(listed)) == 6


@pytest.mark.parametrize("pricing", ["ask the seller", "$", "12.50"])
def test_prices_without_an_amount_are_refused(pricing):
    with pytest.raises(RecordError, match="expected dollar amounts"):
        prices_of(pricing, "B0")
    assert prices_of("", "B0") == (100.0, "$100.0")


def test_of_equal_option_values_the_last_counts_and_buttons_keep_their_labels(golden):
    item = golden("webshop_pages.json")["made_up_items"][0]
    item["customization_options"] = {
        "Size": [{"value": "One"}],
        "Pack": [{"value": "One"}],
        "Odd": [{"value": "Buy Now"}],
    }
    page = item_page("i", product_of(item, ()), show_attributes=True)
    assert page.targets["one"].option == "pack"
    assert page.targets["buy now"] == "Buy Now"
    assert "attributes" in page.targets
