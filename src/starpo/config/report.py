"""What the report shows."""

from __future__ import annotations

from pydantic import Field

from starpo.config.section import Section


class ReportConfig(Section):
    """The HTML page of ``kedro run --pipeline=report``. Nothing here changes a run."""

    name: str = Field("report", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Folder of the page in ``data/08_reporting``."""
    runs: list[str] | None = Field(None, min_length=1)
    """Names or glob patterns of training runs; null: run.source's run, else the newest one, with its other seeds."""
    iterations: int = Field(6, ge=2)
    """Iterations of each run in the trajectory browser: the first, the last and evenly spaced ones between them."""
    groups: int = Field(4, gt=0)
    """Groups of each of these iterations; fewer where the page would exceed max_megabytes."""
    prompts: int = Field(12, gt=0)
    """Evaluation prompts shown side by side; up to half of them are ones that the policies fare differently on."""
    max_megabytes: float = Field(15.0, ge=1)
    """Largest size of the page, MB (10^6 bytes)."""
