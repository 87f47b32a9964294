"""HTML Data Docs of a run: a page per suite and table, rendered by Great Expectations, and an index.

GX's own page template loads its styles and tables from the network; here its table is put into a page that holds all
it needs, so the folder can be opened, copied and published offline.
"""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from typing import Any

from starpo.store.layout import RunPaths

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: .5rem 0; width: 100%; }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top; }
thead[hidden] { display: none; }
.badge { background: #eee; border-radius: .3rem; padding: 0 .3rem; }
.text-success, .passed { color: #1a7f37; } .text-danger, .failed { color: #c0262d; }
.text-warning, .quarantined { color: #9a6700; }
i.fas { font-style: normal; } .fa-check-circle::before { content: "\\2714"; }
.fa-times::before { content: "\\2718"; } .fa-exclamation-triangle::before { content: "\\26A0"; }
a[data-toggle] { pointer-events: none; color: inherit; text-decoration: none; }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>
<body><h1>{title}</h1>
{body}
</body></html>
"""


def results_folder(root: Path, run: str) -> Path:
    """Where the gates keep their results."""
    return RunPaths(root, run).gates


def build_data_docs(root: Path, run: str) -> Path | None:
    """Build ``data/08_reporting/<run>/data_docs`` from all results of the run's suites.

    Returns:
        the index page; None where no suite ran since the site was built.
    """
    results = sorted(results_folder(root, run).glob("*.json"))
    index = RunPaths(root, run).data_docs / "index.html"
    pages = {path: index.parent / f"{path.stem}.html" for path in results}
    stale = [
        path
        for path, page in pages.items()
        if not page.exists() or page.stat().st_mtime < path.stat().st_mtime
    ]
    if not stale:
        return None
    index.parent.mkdir(parents=True, exist_ok=True)
    loaded = {path: json.loads(path.read_text()) for path in results}
    for path in stale:
        body = [
            '<p><a href="index.html">All suites</a></p>',
            _sentences(loaded[path]),
            _rendered(loaded[path]),
        ]
        _write(pages[path], _title(loaded[path]), "\n".join(body))
    rows = "\n".join(_row(pages[path], loaded[path]) for path in results)
    head = "<tr><th>Suite and table</th><th>Result</th><th>Expectations</th><th>What does not hold</th></tr>"
    _write(index, f"Data Docs of {run}", f"<table><thead>{head}</thead><tbody>\n{rows}\n</tbody></table>")
    return index


def _rendered(result: dict[str, Any]) -> str:
    """GX's rendering of what it looked at and found, a row per expectation.

    Only its table: the header of its own page links to pages of a GX project, and there is none.
    """
    from great_expectations.core.expectation_validation_result import (  # noqa: PLC0415
        expectationSuiteValidationResultSchema,
    )
    from great_expectations.render import RenderedSectionContent  # noqa: PLC0415
    from great_expectations.render.renderer.content_block import (  # noqa: PLC0415
        ValidationResultsTableContentBlockRenderer,
    )
    from great_expectations.render.view import DefaultJinjaSectionView  # noqa: PLC0415

    known = {key: value for key, value in result.items() if key != "file"}
    validated = expectationSuiteValidationResultSchema.load(known)
    table = ValidationResultsTableContentBlockRenderer.render(validated.results)
    section = RenderedSectionContent(section_name="Great Expectations", content_blocks=[table])
    return DefaultJinjaSectionView().render({"section": section.to_json_dict(), "section_loop": {"index": 1}})


def _sentences(result: dict[str, Any]) -> str:
    """What must hold, in words, breaches first."""
    rows = []
    for one in sorted(result["results"], key=lambda one: bool(one["success"])):
        config = one["expectation_config"]
        kind = "stops the run" if config["severity"] == "critical" else "quarantines the trajectory"
        verdict = "passed" if one["success"] else "failed"
        says = html.escape(str(config["notes"]))
        rows.append(f'<tr><td class="{verdict}">{verdict}</td><td>{says}</td><td>{kind}</td></tr>')
    head = "<tr><th>Result</th><th>What must hold</th><th>A breach</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _title(result: dict[str, Any]) -> str:
    return f"{result['suite_name']}: {result['file']}"


def _row(page: Path, result: dict[str, Any]) -> str:
    failed = [one["expectation_config"] for one in result["results"] if not one["success"]]
    stopped = any(config["severity"] == "critical" for config in failed)
    verdict = "failed" if stopped else "quarantined" if failed else "passed"
    says = "; ".join(str(config["notes"]) for config in failed)
    cells = (
        f'<a href="{page.name}">{html.escape(_title(result))}</a>',
        f'<span class="{verdict}">{verdict}</span>',
        str(len(result["results"])),
        html.escape(says),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _write(path: Path, title: str, body: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(_PAGE.format(title=html.escape(title), style=STYLE, body=body), encoding="utf-8")
    os.replace(temporary, path)
