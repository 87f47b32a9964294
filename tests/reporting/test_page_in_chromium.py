"""The page in a browser, opened as a file: it draws itself, answers to clicks, asks the network for nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Tab, chromium
from test_content import MONITOR
from written import HOSTILE, write_run

from starpo.config.report import ReportConfig
from starpo.reporting.content import gather
from starpo.reporting.page import render
from starpo.store.policies import Policy

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH; Debian: apt-get install chromium"),
]

CURVES = "figure[data-metric='success'] path.curve"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, tiny_policy: Policy) -> str:
    """A report on two pipelines, whose runs keep a tokenizer."""
    root: Path = tmp_path_factory.mktemp("report")
    for pipeline in ("train_starpo_ppo", "train_starpo_s"):
        for seed in range(3):
            name = f"{pipeline}-lake-seed{seed}"
            write_run(root, name, pipeline=pipeline, seed=seed, iterations=3)
            shutil.copytree(tiny_policy.directory, root / "data/06_models" / name / "policy_0000")
    page = root / "report.html"
    page.write_text(render(gather(root, ReportConfig(runs=["*"]), MONITOR, None), max_megabytes=15))
    return page.as_uri()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(str(CHROMIUM), tmp_path_factory.mktemp("chromium") / "profile") as opened:
        yield opened


@pytest.fixture(autouse=True)
def is_sound(tab: Tab, address: str) -> Iterator[None]:
    """After every test: no complaint, no request but for the page itself, no hostile text that ran."""
    yield
    assert tab.complaints == []
    assert {each.partition("#")[0] for each in tab.requests} <= {address, "about:blank"}
    assert tab.evaluate("document.title") == "starpo: report"
    assert tab.evaluate("document.images.length") == 0


def texts(tab: Tab, selector: str) -> Any:
    return tab.evaluate(f"[...document.querySelectorAll({selector!r})].map((each) => each.textContent)")


def test_the_page_shows_curves_of_both_pipelines_and_the_legend_hides_one(tab: Tab, address: str) -> None:
    tab.open(address)
    assert texts(tab, ".legend button") == ["starpo_ppo, 3 seeds", "starpo_s, 3 seeds"]
    assert tab.evaluate(f"document.querySelectorAll({CURVES!r}).length") == 2
    tab.click(".legend button", 0)
    assert tab.evaluate(f"document.querySelectorAll({CURVES!r}).length") == 1
    tab.click(".legend button", 0)
    assert tab.evaluate(f"document.querySelectorAll({CURVES!r}).length") == 2


def test_a_click_on_a_member_shows_its_turns_with_board_thought_reward_and_coloured_tokens(
    tab: Tab, address: str, tiny_policy: Policy
) -> None:
    tab.open(address)
    tab.choose("#trajectories .controls label:nth-child(2) select", "2")
    tab.click("#trajectories .members button", 1)
    assert "iteration=2" in tab.evaluate("location.hash")
    assert "member=1" in tab.evaluate("location.hash")
    assert texts(tab, "#trajectory .turn > header b") == ["Turn 1", "0", "Turn 2", "1"]
    assert texts(tab, "#trajectory .turn:last-child .board span") == ["P", "", "O", "", "", "G"]
    assert "go right" in texts(tab, "#trajectory .said")[0]
    decode = tiny_policy.tokenizer().decode
    assert texts(tab, "#trajectory .turn:last-child .t.sampled") == [decode([4]), decode([5])]
    shades = tab.evaluate(
        "[...document.querySelectorAll('#trajectory .turn:last-child .t.sampled')]"
        ".map((each) => getComputedStyle(each).backgroundColor)"
    )
    # Advantages 0.5 and -1.25: a light shade of the positive colour, the full one of the negative.
    assert shades == ["rgba(38, 110, 220, 0.32)", "rgba(222, 84, 40, 0.8)"]


def test_hostile_thoughts_are_shown_as_they_are(tab: Tab, address: str) -> None:
    tab.open(address)
    tab.click("#trajectories .members button", 0)
    assert HOSTILE in texts(tab, "#trajectory pre")


def test_a_filtered_trajectory_says_that_it_has_no_advantages(tab: Tab, address: str) -> None:
    tab.open(f"{address}#run=train_starpo_s-lake-seed1&iteration=1&group=1&member=0")
    assert "zero_spread" in "".join(texts(tab, "#trajectories .note"))
    tab.choose("#trajectories .controls label:nth-child(4) select", "logprobs")
    assert texts(tab, "#trajectories .note") == []


def test_one_prompt_stands_side_by_side_under_two_policies(tab: Tab, address: str) -> None:
    tab.open(address)
    assert texts(tab, "#side .card > header b:first-child") == ["base", "last, best"]
    tab.click("#next-prompt")
    assert texts(tab, "#side .card > header b:last-of-type") == ["not solved", "solved"]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (420, False), (1280, True)])
def test_the_page_fits_the_screen(tab: Tab, address: str, tmp_path: Path, width: int, dark: bool) -> None:
    tab.open(address, width=width, dark=dark)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light is not dark
    tab.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
