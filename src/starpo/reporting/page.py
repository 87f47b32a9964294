"""One HTML page from a report's content: no request to anything, no library, no text that could become markup.

Texts of models and environments reach the page as data only: the summary as JSON whose ``<`` is escaped, the
trajectories compressed in base64; the script in the page puts them into text nodes.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
from html import escape
from importlib.resources import files
from typing import Any

from starpo.errors import UserError
from starpo.redaction import redact

_SCRIPTS = ("elements.js", "charts.js", "tables.js", "trajectory.js", "browser.js", "main.js")


def render(content: dict[str, Any], *, max_megabytes: float) -> str:
    """The page. Groups of the trajectory browser are left out, from the end, until it is small enough.

    Args:
        content: of :func:`starpo.reporting.content.gather`.
        max_megabytes: largest size, MB.

    Raises:
        UserError: even with one group per iteration it is too large.
    """
    trajectories = content["trajectories"]
    while True:
        page = _page(content["summary"], trajectories)
        size = len(page.encode()) / 1e6
        if size <= max_megabytes:
            return page
        most = max(
            (len(each["groups"]) for run in trajectories["runs"] for each in run["iterations"]), default=1
        )
        if most <= 1:
            raise UserError(
                f"the report would have {size:.1f} MB with one group per iteration, report.max_megabytes = "
                f"{max_megabytes:g}; lower report.iterations or report.prompts, or name fewer runs in report.runs"
            )
        trajectories = _with_fewer_groups(trajectories, most // 2)


def _with_fewer_groups(trajectories: dict[str, Any], count: int) -> dict[str, Any]:
    fewer = copy.deepcopy(trajectories)
    for run in fewer["runs"]:
        for iteration in run["iterations"]:
            iteration["groups"] = iteration["groups"][:count]
    return fewer


def _page(summary: dict[str, Any], trajectories: dict[str, Any]) -> str:
    parts = {
        "TITLE": escape(f"starpo: {summary['name']}"),
        "STYLE": _file("report.css"),
        "SUMMARY": redact(_json(summary)).replace("<", "\\u003c"),
        "TRAJECTORIES": _packed(_json(trajectories)),
        "SCRIPT": "\n".join(_file(name) for name in _SCRIPTS),
    }
    # Split, not replaced one after the other: a text in the data may look like a place holder.
    pieces = _file("report.html").split("%%")
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _packed(text: str) -> str:
    """gzip, base64; equal texts give equal bytes."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "surrogatepass"), mtime=0)).decode()


def _file(name: str) -> str:
    return (files("starpo.reporting") / "page" / name).read_text(encoding="utf-8")
