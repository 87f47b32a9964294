"""The page as a text: nothing from data becomes markup, nothing is loaded, the size is bounded."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from test_content import MONITOR
from written import HOSTILE, write_run

from starpo.config.report import ReportConfig
from starpo.errors import UserError
from starpo.reporting.content import gather
from starpo.reporting.page import render


class Elements(HTMLParser):
    """Tags with their attributes, and the contents of scripts by id."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str | None, str] = {}
        self._inside: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[self._inside] = self.scripts.get(self._inside, "") + data


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root: Path = tmp_path_factory.mktemp("page")
    write_run(root, "train_starpo_s-lake-seed0")
    gathered = gather(root, ReportConfig(runs=["*"]), MONITOR, None)
    # A hostile text where an environment's name or an event could be.
    gathered["summary"]["collapse"][0]["events"] = [HOSTILE]
    return gathered


@pytest.fixture(scope="module")
def page(content: dict[str, Any]) -> str:
    return render(content, max_megabytes=15)


def test_texts_of_models_stay_data(page: str) -> None:
    elements = Elements(page)
    assert [tag for tag, _ in elements.tags].count("script") == 3
    assert "img" not in [tag for tag, _ in elements.tags]
    assert "<img" not in page


def test_the_data_survives_the_way_into_the_page(page: str, content: dict[str, Any]) -> None:
    scripts = Elements(page).scripts
    assert json.loads(scripts["summary"]) == content["summary"]
    packed = gzip.decompress(base64.b64decode(scripts["trajectories"]))
    assert json.loads(packed) == content["trajectories"]
    assert HOSTILE in json.dumps(json.loads(packed), ensure_ascii=False).replace('\\"', '"')


def test_nothing_refers_to_another_file(page: str) -> None:
    elements = Elements(page)
    for tag, attributes in elements.tags:
        assert not attributes.get("src"), tag
        assert (attributes.get("href") or "data:").startswith("data:")
    assert set(re.findall(r"https?://[^\"'\s]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(", page)


def test_equal_content_gives_equal_pages(page: str, content: dict[str, Any]) -> None:
    assert render(content, max_megabytes=15) == page


def many_groups(count: int) -> dict[str, Any]:
    """Trajectories that do not compress: 60 kB of random digits per group."""
    import random

    generator = random.Random(0)
    groups = [{"group": group, "digits": f"{generator.getrandbits(400_000):x}"} for group in range(count)]
    runs = [{"run": "x", "iterations": [{"iteration": 0, "groups": groups}]}]
    return {"summary": {"name": "large"}, "trajectories": {"runs": runs, "sides": []}}


def test_groups_are_left_out_until_the_page_is_small_enough() -> None:
    page = render(many_groups(32), max_megabytes=1)
    assert len(page.encode()) <= 1e6
    packed = json.loads(gzip.decompress(base64.b64decode(Elements(page).scripts["trajectories"])))
    left = [each["group"] for each in packed["runs"][0]["iterations"][0]["groups"]]
    assert left == list(range(len(left)))
    assert 0 < len(left) < 32


def test_a_page_that_cannot_be_made_small_enough_is_refused_with_what_to_lower() -> None:
    content = many_groups(1)
    content["summary"]["name"] = "x" * 1_100_000
    with pytest.raises(UserError, match=r"report\.max_megabytes = 1; lower report\.iterations"):
        render(content, max_megabytes=1)
