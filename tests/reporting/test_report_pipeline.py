"""``kedro run --pipeline=report`` and its parameters."""

from __future__ import annotations

import pytest
from projects import TRAINED, Project
from pydantic import ValidationError
from written import write_run

from starpo.config.identity import EXTENDABLE
from starpo.config.report import ReportConfig
from starpo.store.runs import check_same


@pytest.mark.parametrize(
    "wrong",
    [{"iterations": 1}, {"groups": 0}, {"runs": []}, {"max_megabytes": 0.1}, {"name": "../x"}, {"run": "x"}],
)
def test_values_out_of_range_are_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        ReportConfig(**wrong)


def test_a_run_goes_on_whatever_the_report_is_about(tmp_path) -> None:
    assert {("report", name) for name in ReportConfig.model_fields} <= EXTENDABLE
    record = write_run(tmp_path, "run").record
    check_same(record, record.parameters | {"report": ReportConfig(runs=["*"]).model_dump()})


@pytest.mark.slow
@pytest.mark.usefixtures("smoke")
def test_the_page_is_written_anew_every_time_and_is_no_run(project: Project) -> None:
    page = project.folder("08_reporting", "report") / "report.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("an old one")
    done = project.run("--env=smoke", "--pipeline=report", "--params", f"report.runs=[{TRAINED}]")
    assert done.code == 0, done.text
    assert "Report: data/08_reporting/report/report.html" in done.text
    assert f'"run":"{TRAINED}"' in page.read_text()
    assert not (project.folder("00_runs", "report") / "run.json").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("smoke")
def test_a_name_without_a_run_is_refused_with_the_names_there_are(project: Project) -> None:
    message = project.refused("--env=smoke", "--pipeline=report", "--params", "report.runs=[nothing]")
    assert "report.runs: 'nothing' matches no training run" in message
    assert TRAINED in message
