"""WebShop: buy the product that an instruction describes, by searching and clicking."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from starpo.environments.arguments import check_switches, is_whole
from starpo.environments.base import StepResult, TextEnvironment
from starpo.environments.records import Expectation, Limits
from starpo.environments.splits import Split, split_of
from starpo.environments.webshop.actions import CLICK, SEARCH, SEARCH_PLACEHOLDER, Action, parse_action
from starpo.environments.webshop.catalogue import MAX_HITS, Catalogue
from starpo.environments.webshop.files import GoalKind, ShopFiles, load_catalogue
from starpo.environments.webshop.generator import Difficulty, generate_catalogue
from starpo.environments.webshop.pages import (
    PAGE_SIZE,
    SUB_PAGES,
    Button,
    OptionValue,
    Page,
    PageKind,
    done_page,
    item_page,
    results_page,
    search_page,
    sub_page,
)
from starpo.environments.webshop.phrases import phrases_of
from starpo.environments.webshop.product import Goal, Product
from starpo.environments.webshop.reward import score_purchase

#: Catalogues that a process keeps.
REMEMBERED_CATALOGUES: Final = 4

HINT: Final = (
    "Hint: search with a few words of the instruction, open a product, click the options that are asked for, "
    "then buy."
)


@dataclass
class Session:
    """Where the customer is. Opening a results page forgets the product and its options."""

    kind: PageKind = PageKind.SEARCH
    query: str = ""
    hits: tuple[int, ...] = ()
    """Catalogue positions that the query found."""
    number: int = 1
    """Page of the results, from 1."""
    product: int | None = None
    """Catalogue position."""
    opened: Button | None = None
    """Sub-page."""
    options: dict[str, str] = field(default_factory=dict)
    """Chosen value by option name."""

    def mark(self) -> tuple[Any, ...]:
        """All that can change, for comparison."""
        chosen = tuple(self.options.items())
        return self.kind, self.query, self.hits, self.number, self.product, self.opened, chosen


class WebShop(TextEnvironment):
    """Buy the product that the instruction describes.

    Description:
        A shop with a search engine, product pages and options (Yao et al., arXiv 2207.01206), in its text mode.
        The rules of pages, actions and reward are in docs/webshop.md, with all differences to the published
        server.

    Action Space:
        Free text: ``search[words]`` from every page; ``click[label]`` for a button, a product id or an option
        value of the present page. Anything else does nothing. ``possible_actions`` lists what can be done.

    Observation:
        The page's texts joined by `` [SEP] ``. Chosen options are not marked. With ``hints`` and
        ``list_actions`` further lines. ``info["page"]`` is the kind of page after a step, ``info["actions"]`` what it
        offers.

    Starting State:
        A goal of the catalogue, uniform or by weight, and the search page with its instruction. Goals belong to
        a split by their instruction.

    Rewards:
        0 until the purchase, then the score from 0 to 1 (``binary_reward``: 1 only for a perfect score, else 0).
        ``info["score"]`` is the score in either case, ``info["success"]`` says that it is 1.

    Episode End:
        Terminated by ``click[buy now]``. Limits on turns belong to the rollout.

    Arguments:
        products: size of a generated catalogue, to 1,200,000; of given files, how many of the first to use (None:
            all).
        seed: of a generated catalogue, below 2^32.
        difficulty: of a generated catalogue: ``easy``, ``normal`` or ``hard``.
        path: WebShop's product file or the folder that holds it; None for a generated catalogue.
        goals: ``synthetic``, one per combination of options, or ``human``, as people write.
        weighted_goals: draw goals by weight instead of uniformly.
        page_size: products on a results page.
        show_attributes: item pages have an Attributes sub-page.
        hints: every observation ends with advice.
        list_actions: every observation ends with the possible actions.
        binary_reward: reward only perfect purchases.
    """

    rules = (
        "You shop online. Buy the product that the instruction asks for, with the options it names, below its "
        "price limit.\nActions: search[words] looks for products; click[label] clicks a button, a product id or "
        "an option value of the page. click[buy now] on a product's page buys it and ends the shopping."
    )
    action_names = ()
    return_range = (0.0, 1.0)
    trusted = True

    def __init__(
        self,
        *,
        products: int | None = None,
        seed: int = 0,
        difficulty: str = Difficulty.NORMAL.value,
        path: str | Path | None = None,
        goals: GoalKind = "synthetic",
        weighted_goals: bool = False,
        page_size: int = PAGE_SIZE,
        show_attributes: bool = False,
        hints: bool = False,
        list_actions: bool = False,
        binary_reward: bool = False,
        catalogue: Catalogue | None = None,
    ) -> None:
        super().__init__()
        if goals not in ("synthetic", "human"):
            raise ValueError(f"WebShop: goals is {goals!r}, allowed: synthetic, human")
        if difficulty not in list(Difficulty):
            raise ValueError(f"WebShop: difficulty is {difficulty!r}, allowed: {', '.join(Difficulty)}")
        if not (is_whole(page_size) and 1 <= page_size <= MAX_HITS):
            raise ValueError(f"WebShop: page_size is {page_size!r}, allowed: whole numbers 1 to {MAX_HITS}")
        if not (is_whole(seed) and 0 <= seed < SEEDS):
            raise ValueError(f"WebShop: seed is {seed!r}, allowed: whole numbers 0 to {SEEDS - 1}")
        if not (path is None or (isinstance(path, str | Path) and str(path))):
            raise ValueError(f"WebShop: path is {path!r}, allowed: a file or folder, or null to generate")
        if products is not None and not (is_whole(products) and products >= 1):
            raise ValueError(
                f"WebShop: products is {products!r}, allowed: whole numbers from 1, or null for {DEFAULT_PRODUCTS} "
                "generated ones or all of the files"
            )
        if path is None and products is not None and products > MAX_GENERATED:
            raise ValueError(
                f"WebShop: products is {products!r}, allowed in generated catalogues: 1 to {MAX_GENERATED}"
            )
        if not (catalogue is None or isinstance(catalogue, Catalogue)):
            raise ValueError(f"WebShop: catalogue is {catalogue!r}, allowed: a Catalogue, or null")
        check_switches(
            "WebShop",
            weighted_goals=weighted_goals,
            show_attributes=show_attributes,
            hints=hints,
            list_actions=list_actions,
            binary_reward=binary_reward,
        )
        if catalogue is None:
            catalogue = (
                _generated(products or DEFAULT_PRODUCTS, seed, Difficulty(difficulty), goals)
                if path is None
                else _loaded(ShopFiles.find(path, goals), products)
            )
        self.catalogue = catalogue
        self.page_size = page_size
        self.show_attributes = show_attributes
        self.hints = hints
        self.list_actions = list_actions
        self.binary_reward = binary_reward
        self.weighted_goals = weighted_goals
        self.phrases = phrases_of(catalogue)
        self.goal: Goal = catalogue.goals[0]
        self.session = Session()
        self._page = search_page(self.goal.instruction)

    def match_action(self, text: str) -> str | None:
        """``text`` as an action in lower case if it is well-formed, whatever the page has; else None."""
        action = parse_action(text.strip().lower())
        return None if action is None else str(action)

    def declared_split(self) -> Split:
        """The split of the present goal, by its instruction: equal words are never in two splits."""
        return split_of(self.goal.instruction)

    @property
    def possible_actions(self) -> tuple[str, ...]:
        """Actions that the page offers: the search box where it is shown, then a click per label."""
        if self.session.kind is PageKind.SEARCH:
            return (SEARCH_PLACEHOLDER,)
        return tuple(f"{CLICK}[{label}]" for label in self._page.targets)

    def random_action(self, draw: np.random.Generator) -> str:
        """One of ``possible_actions``, uniform; a search takes one to four neighbouring words of the instruction."""
        possible = self.possible_actions
        action = possible[int(draw.integers(len(possible)))]
        if action != SEARCH_PLACEHOLDER:
            return action
        words = self.goal.instruction.lower().split()
        length = int(draw.integers(1, 5))
        first = int(draw.integers(max(1, len(words) - length + 1)))
        return f"{SEARCH}[{' '.join(words[first : first + length])}]"

    def optimal_actions(self) -> list[str]:
        """A way from the present page to a best purchase."""
        from starpo.environments.webshop import oracle  # noqa: PLC0415 - it builds on this module

        return oracle.optimal_actions_for(self)

    def best_play(self, limits: Limits) -> Expectation | None:
        """The best purchase, where its way fits the limits."""
        from starpo.environments.webshop import oracle  # noqa: PLC0415

        if len(self.optimal_actions()) > limits.moves:
            return None
        score = oracle.best_reward(self)
        return Expectation(float(score == 1), float(score == 1) if self.binary_reward else score)

    @classmethod
    def board_of(cls, observation: str) -> None:
        """Pages are text."""

    @property
    def product(self) -> Product | None:
        """The product whose page or sub-page is open."""
        return None if self.session.product is None else self.catalogue.products[self.session.product]

    def _begin(self, instance: np.random.Generator) -> tuple[str, dict[str, Any]]:
        return self.begin_goal(self.catalogue.goals.draw(instance, by_weight=self.weighted_goals))

    def begin_goal(self, goal: Goal) -> tuple[str, dict[str, Any]]:
        """Start a session for ``goal``; ``reset`` does it with a drawn one."""
        self.goal = goal
        self._over = False
        self._open(Session())
        return self._observe(), {"success": False, "score": 0.0, "page": PageKind.SEARCH.value}

    def _act(self, action: str) -> StepResult:
        before = self.session.mark()
        parsed = parse_action(action)
        valid = parsed is not None and self._do(parsed)
        done = self.session.kind is PageKind.DONE
        score = self._score() if done else 0.0
        success = done and score == 1.0
        if done:
            self._page = done_page(score)
        reward = float(success) if self.binary_reward else score
        info = {
            "success": success,
            "effective": self.session.mark() != before,
            "valid": valid,
            "score": score,
            "page": self.session.kind.value,
            "actions": list(self.possible_actions),
        }
        return self._observe(), reward, done, False, info

    def _score(self) -> float:
        product = self.product
        assert product is not None
        return float(score_purchase(product, self.session.options.values(), self.goal).total)

    def _do(self, action: Action) -> bool:
        """Carry ``action`` out; False if the page has no such label."""
        if action.name == SEARCH:
            self._open_results(action.argument, self.catalogue.search(action.argument, self.dynamics), 1)
            return True
        target = self._page.targets.get(action.argument)
        if isinstance(target, Button):
            self._press(target)
        elif isinstance(target, OptionValue):
            self.session.options[target.option] = target.value
        elif target is not None:
            self._open_item(target)
        return target is not None

    def _press(self, button: Button) -> None:
        session = self.session
        if button is Button.BUY:
            session.kind = PageKind.DONE
        elif button is Button.BACK:
            self._open(Session())
        elif button in SUB_PAGES:
            session.kind, session.opened = PageKind.SUB_PAGE, button
            self._open(session)
        elif session.kind is PageKind.SUB_PAGE:
            session.kind, session.opened = PageKind.ITEM, None
            self._open(session)
        elif session.kind is PageKind.ITEM:
            self._open_results(session.query, session.hits, session.number)
        else:
            step = 1 if button is Button.NEXT else -1
            self._open_results(session.query, session.hits, session.number + step)

    def _open_results(self, query: str, hits: tuple[int, ...], number: int) -> None:
        self._open(Session(PageKind.RESULTS, query, hits, number))

    def _open_item(self, position: int) -> None:
        before = self.session
        self._open(Session(PageKind.ITEM, before.query, before.hits, before.number, position))

    def _open(self, session: Session) -> None:
        self.session = session
        self._page = self._render()

    def _render(self) -> Page:
        session, instruction = self.session, self.goal.instruction
        product = self.product
        if product is None:
            if session.kind is PageKind.SEARCH:
                return search_page(instruction)
            first = (session.number - 1) * self.page_size
            shown = [self.catalogue.products[each] for each in session.hits[first : first + self.page_size]]
            return results_page(instruction, session.hits, shown, session.number, self.page_size)
        if session.opened is not None:
            return sub_page(instruction, product, session.opened)
        return item_page(instruction, product, show_attributes=self.show_attributes)

    def _observe(self) -> str:
        lines = [self._page.text]
        if self.hints and self.session.kind is not PageKind.DONE:
            lines.append(HINT)
        if self.list_actions and self.session.kind is not PageKind.DONE:
            lines.append(f"Possible actions: {', '.join(self.possible_actions)}")
        return "\n".join(lines)


#: Products of a generated catalogue, as many as WebShop's small set.
DEFAULT_PRODUCTS: Final = 1000

#: Just beyond WebShop's full set of 1.18 million, which takes minutes and gigabytes (docs/webshop.md).
MAX_GENERATED: Final = 1_200_000

#: A larger seed would be two words of the ``numpy.random.SeedSequence`` that the size follows in.
SEEDS: Final = 2**32

_generated = lru_cache(maxsize=REMEMBERED_CATALOGUES)(generate_catalogue)
_loaded = lru_cache(maxsize=REMEMBERED_CATALOGUES)(load_catalogue)
