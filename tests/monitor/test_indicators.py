"""An indicator that could never warn is refused before any work."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from builders import PROJECT, raised_message

from starpo.config.environment import EnvironmentConfig
from starpo.config.monitor import MonitorConfig
from starpo.errors import UserError
from starpo.monitor.glossary import ITERATION, MONITOR, ROLLOUT, TIMINGS, UPDATE
from starpo.monitor.indicators import check_indicators

BANDIT = EnvironmentConfig(name="bandit")
MIXTURE = EnvironmentConfig.model_validate(
    {
        "name": "both",
        "mixture": [{"name": "bandit", "weight": 1}, {"name": "frozen_lake", "label": "lake", "weight": 1}],
    }
)
BASE = yaml.safe_load((PROJECT / "conf/base/parameters_monitor.yml").read_text())["monitor"]


def monitor(**indicators: dict[str, Any]) -> MonitorConfig:
    """The project's own with ``indicators`` beside its own."""
    limits = {"side": "below", "warning": 0.5, "alarm": 0.2}
    more = {name: limits | about for name, about in indicators.items()}
    return MonitorConfig.model_validate(BASE | {"indicators": BASE["indicators"] | more})


@pytest.mark.parametrize("environment", [BANDIT, MIXTURE])
def test_the_project_s_own_indicators_are_known(environment: EnvironmentConfig) -> None:
    check_indicators(monitor(), environment)


@pytest.mark.parametrize("metric", [name for name in (*ROLLOUT, *UPDATE) if "<" not in name])
def test_a_metric_of_rollouts_and_update_can_be_watched_under_any_name(metric: str) -> None:
    if metric != "sync_difference":
        check_indicators(monitor(mine={"metric": metric}), BANDIT)


@pytest.mark.parametrize("metric", [*ROLLOUT, *UPDATE])
def test_a_misspelt_metric_is_refused_with_its_key_and_the_right_name(metric: str) -> None:
    right = metric.replace("<environment>", "lake").replace("<term>", "judge")
    wrong = f"{right[:-2]}{right[-1]}{right[-2]}x"
    message = raised_message(
        UserError, lambda: check_indicators(monitor(mine={"metric": wrong}), MIXTURE, ["judge"])
    )
    assert f"monitor.indicators.mine.metric: the monitor can watch no metric {wrong!r}" in message
    assert right in message.partition("near it: ")[2] or right == "sync_difference"
    assert "docs/metrics.md" in message and "monitor.indicators.mine=null" in message
    named = raised_message(UserError, lambda: check_indicators(monitor(**{wrong: {}}), MIXTURE))
    assert named.startswith(f"monitor.indicators.{wrong}: ")


@pytest.mark.parametrize(
    "metric", [*ITERATION, *MONITOR, *TIMINGS, "sync_difference", "success/<environment>"]
)
def test_what_the_monitor_never_sees_cannot_be_watched(metric: str) -> None:
    raised_message(UserError, lambda: check_indicators(monitor(mine={"metric": metric}), BANDIT))


def test_metrics_per_environment_are_those_of_the_mixture() -> None:
    for label in ("bandit", "lake"):
        check_indicators(monitor(mine={"metric": f"success/{label}"}), MIXTURE)
    for environment, metric in ((MIXTURE, "success/frozen_lake"), (BANDIT, "success/bandit")):
        message = raised_message(
            UserError, lambda e=environment, m=metric: check_indicators(monitor(mine={"metric": m}), e)
        )
        assert f"no metric {metric!r}" in message


def test_metrics_per_term_are_those_of_the_terms_in_use() -> None:
    for metric in ("term/judge", "term_missing/judge"):
        check_indicators(monitor(mine={"metric": metric}), BANDIT, ["judge"])
        message = raised_message(
            UserError, lambda m=metric: check_indicators(monitor(mine={"metric": m}), BANDIT)
        )
        assert f"no metric {metric!r}" in message
