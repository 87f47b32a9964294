"""The report: read the files of the chosen runs, draw the page."""

from __future__ import annotations

import logging
from typing import Any

from starpo.config.monitor import MonitorConfig
from starpo.config.report import ReportConfig
from starpo.config.run import RunConfig
from starpo.store.runs import find_root

logger = logging.getLogger(__name__)


def gather_runs(report: ReportConfig, monitor: MonitorConfig, run: RunConfig) -> dict[str, Any]:
    """What the runs of ``report.runs`` have stored: curves, tables, sampled trajectories."""
    from starpo.reporting.content import gather

    return gather(find_root(), report, monitor, run.source)


def draw_page(content: dict[str, Any], report: ReportConfig) -> str:
    """One self-contained HTML page."""
    from starpo.reporting.page import render

    page = render(content, max_megabytes=report.max_megabytes)
    runs = len(content["summary"]["runs"])
    logger.info("report %s: %d runs, %.1f MB", report.name, runs, len(page.encode()) / 1e6)
    return page
