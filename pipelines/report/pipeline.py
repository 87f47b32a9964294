"""Files of several runs -> one page."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from starpo.config.resolved import Resolved
from starpo.pipelines.report.nodes import draw_page, gather_runs


def create_pipeline(_: Resolved) -> Pipeline:
    """The runs are those of ``report.runs``; they are read from their files, whatever they are doing."""
    return Pipeline(
        [
            Node(
                gather_runs,
                inputs=["params:report", "params:monitor", "params:run"],
                outputs="report_content",
                name="gather_runs",
            ),
            Node(draw_page, inputs=["report_content", "params:report"], outputs="report", name="draw_page"),
        ]
    )
