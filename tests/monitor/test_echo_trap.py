"""The Echo Trap monitor on made-up courses of a run: each kind of collapse, health, noise, resume."""

from __future__ import annotations

import math

import numpy as np
import pytest
import yaml
from builders import PROJECT
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from starpo.config.monitor import MonitorConfig
from starpo.monitor.echo_trap import (
    FORMAT_LOST,
    HACKING,
    MonitorState,
    decide,
    describe,
    lead_times,
    observe,
    rolled_back,
    stages,
    watch,
)

CONFIG = MonitorConfig.model_validate(
    yaml.safe_load((PROJECT / "conf/base/parameters_monitor.yml").read_text())["monitor"]
)


def course(iterations: int = 40, **changes: list[float]) -> list[dict[str, float]]:
    """Metrics of a run that improves in peace, with whole columns replaced by ``changes``."""
    columns = {
        # About that of 32 prompts with 8 attempts each.
        "success_error": np.full(iterations, 0.03),
        "success": np.linspace(0.3, 0.85, iterations),
        "return": np.linspace(0.2, 0.8, iterations),
        "return_std": np.full(iterations, 0.3),
        "entropy": np.full(iterations, 0.5),
        "gradient_norm": np.full(iterations, 0.3),
        "thought_distinct_share": np.full(iterations, 0.5),
        "thought_variety": np.full(iterations, 0.6),
        "thought_words_mean": np.full(iterations, 9.0),
    } | {name: np.asarray(values) for name, values in changes.items()}
    return [
        {"iteration": i} | {name: float(values[i]) for name, values in columns.items()}
        for i in range(iterations)
    ]


def then(before: float, after: float, at: int = 20, iterations: int = 40) -> list[float]:
    return [before] * at + [after] * (iterations - at)


def test_a_run_that_improves_stays_quiet():
    state = watch(course(), CONFIG)
    assert state.verdict.stage == "quiet"
    assert state.events == ()
    assert state.good == 39


def test_a_lost_format_is_an_alarm_at_once_that_says_what_to_do_and_ends_with_it():
    lost = [{"trajectories": 256.0, "format_valid_rate": 0.9 if i != 7 else 0.0} for i in range(12)]
    states = [MonitorState()]
    for metrics, rate in zip(course(12), lost, strict=True):
        states.append(observe(states[-1], metrics | rate, CONFIG))
    stage_of = [state.verdict.stage for state in states[1:]]
    assert stage_of == ["quiet"] * 7 + ["alarm"] + ["quiet"] * 4
    event = next(event for event in states[8].events if event.indicator == FORMAT_LOST)
    assert describe(event).startswith("iteration 7: format_lost: no answer had a valid format")
    assert "roll_back" in describe(event)
    for action, expected in (("none", "go_on"), ("stop", "stop"), ("roll_back", "roll_back")):
        assert decide(states[8], CONFIG.model_copy(update={"action": action})) == expected
    assert stages(states[8])["monitor_format_lost"] == 2
    assert "monitor_format_lost" not in stages(states[7])
    assert FORMAT_LOST not in lead_times(states[-1])
    assert MonitorState.model_validate(states[8].model_dump(mode="json")) == states[8]


def test_an_iteration_without_trajectories_has_lost_no_format():
    state = observe(MonitorState(), {"iteration": 0, "trajectories": 0.0, "format_valid_rate": 0.0}, CONFIG)
    assert state.verdict.stage == "quiet"


def test_convergence_loses_entropy_and_spread_without_a_verdict():
    falling = np.linspace(1, 0.05, 40)
    state = watch(course(entropy=0.5 * falling, return_std=0.3 * falling), CONFIG)
    assert state.verdict.stage == "quiet"
    assert {event.indicator for event in state.events} == {"entropy", "return_std"}


def test_a_fall_of_success_is_an_alarm_that_says_when_it_began():
    state = watch(course(success=then(0.7, 0.1)), CONFIG)
    assert state.verdict.stage == "alarm"
    assert 20 <= state.verdict.since <= 20 + CONFIG.window + CONFIG.patience
    assert state.good == 19


def test_indicators_alone_alarm_where_success_does_not_improve():
    state = watch(course(success=[0.3] * 40, entropy=then(0.5, 0.02), return_std=then(0.3, 0.01)), CONFIG)
    assert state.verdict.stage == "alarm"


def test_entropy_that_rises_without_end_is_seen_beside_entropy_that_falls():
    state = watch(course(success=[0.3] * 40, entropy=list(np.linspace(0.5, 4.0, 40))), CONFIG)
    assert state.records["entropy"].stage == "quiet"
    assert state.records["entropy_rise"].stage == "alarm"
    assert [event.after for event in state.events] == ["warning", "alarm"]
    fallen = watch(course(success=[0.3] * 40, entropy=then(0.5, 0.02)), CONFIG)
    assert fallen.records["entropy_rise"].stage == "quiet"


def test_a_lower_layers_indicator_is_switched_off_by_null():
    limits = CONFIG.model_dump() | {"indicators": CONFIG.model_dump()["indicators"] | {"entropy_rise": None}}
    config = MonitorConfig.model_validate(limits)
    assert "entropy_rise" not in config.indicators
    assert "monitor_entropy_rise" not in stages(watch(course(), config))


def test_success_cannot_be_made_to_watch_something_else():
    limits = CONFIG.model_dump()
    limits["indicators"]["success"]["metric"] = "entropy"
    with pytest.raises(ValidationError, match="watches success alone"):
        MonitorConfig.model_validate(limits)


def test_one_indicator_alone_makes_no_verdict():
    state = watch(course(success=[0.3] * 40, entropy=then(0.5, 0.02)), CONFIG)
    assert state.verdict.stage == "quiet"
    assert state.records["entropy"].stage == "alarm"


def test_return_that_rises_while_success_falls_is_an_alarm():
    success = [0.6] * 15 + list(np.linspace(0.6, 0.45, 25))
    state = watch(course(success=success), CONFIG)
    assert state.records[HACKING].stage == "alarm"
    assert state.verdict.stage == "alarm"


def test_a_fall_within_sampling_noise_is_none():
    success = then(0.10, 0.06)
    noisy = course(success=success, success_error=[0.1] * 40)
    assert watch(noisy, CONFIG).records["success"].stage == "quiet"
    sure = course(success=success, success_error=[0.001] * 40)
    assert watch(sure, CONFIG).records["success"].stage != "quiet"


def test_a_fall_in_the_first_iterations_is_measured_against_the_first_policy():
    success = [0.6] + [0.1] * 19
    assert watch(course(20, success=success), CONFIG).verdict.stage == "alarm"
    unsure = course(20, success=success, success_error=[0.3] * 20)
    assert watch(unsure, CONFIG).verdict.stage == "quiet"


def test_a_stage_ends_only_after_patience_beyond_the_release():
    entropy = [0.5] * 10 + [0.15] * 10 + [0.21] * 5 + [0.5] * 15
    seen = [0]
    state = MonitorState()
    for metrics in course(success=[0.3] * 40, entropy=entropy):
        state = observe(state, metrics, CONFIG)
        seen.append(int(stages(state)["monitor_entropy"]))
    # 0.21 is just above the limit of 0.4 x 0.5 but not by the release of a tenth.
    assert seen[26] == 1
    assert seen[-1] == 0
    assert [event.after for event in state.events] == ["warning", "quiet"]


def test_lead_times_count_from_each_first_warning_to_the_fall_of_success():
    metrics = course(
        success=then(0.7, 0.1, at=25), entropy=then(0.5, 0.02, at=12), return_std=then(0.3, 0.05, at=18)
    )
    leads = lead_times(watch(metrics, CONFIG))
    assert leads["entropy"] > leads["return_std"] > 0
    assert leads["gradient_norm"] is None
    assert lead_times(watch(course(), CONFIG)) == {}


def test_the_lead_is_to_the_last_fall_of_success():
    success = [0.7] * 10 + [0.3] * 8 + [0.7] * 12 + [0.1] * 10
    entropy = [0.5] * 24 + [0.02] * 16
    leads = lead_times(watch(course(success=success, entropy=entropy), CONFIG))
    assert 0 < leads["entropy"] < 10


def test_a_state_goes_through_json_unchanged_at_every_iteration():
    metrics = course(success=then(0.7, 0.1), gradient_norm=then(0.3, 50.0))
    state = MonitorState()
    for each in metrics:
        state = observe(MonitorState.model_validate_json(state.model_dump_json()), each, CONFIG)
    assert state == watch(metrics, CONFIG)


def test_after_a_roll_back_the_run_is_watched_anew_with_the_old_references():
    state = watch(course(success=then(0.7, 0.1)), CONFIG)
    back = rolled_back(state, 40)
    assert (back.verdict.stage, back.roll_backs, back.good) == ("quiet", 1, 19)
    assert back.records["success"].best == state.records["success"].best
    again = back
    for i in range(41, 60):
        again = observe(again, course(success=[0.1] * 60, iterations=60)[i], CONFIG)
    assert again.verdict.stage == "alarm"


def test_a_fall_that_the_average_still_hides_is_not_a_good_policy():
    config = CONFIG.model_copy(update={"window": 2, "reference_iterations": 2})
    falling = [0.5, 0.0, 0.0, 0.0]
    state = watch(course(4, success=falling), config)
    assert state.good == 0


@pytest.mark.parametrize(
    ("action", "good", "roll_backs", "decision"),
    [
        ("none", 3, 0, "go_on"),
        ("stop", 3, 0, "stop"),
        ("roll_back", 3, 0, "roll_back"),
        ("roll_back", 3, 2, "stop"),
        ("roll_back", None, 0, "stop"),
    ],
)
def test_an_alarm_is_answered_as_configured(action, good, roll_backs, decision):
    config = CONFIG.model_copy(update={"action": action, "max_roll_backs": 2})
    state = watch(course(success=then(0.7, 0.1)), CONFIG)
    state = state.model_copy(update={"good": good, "roll_backs": roll_backs})
    assert decide(state, config) == decision
    assert decide(MonitorState(), config) == "go_on"


def test_iterations_that_train_nothing_leave_update_indicators_waiting():
    metrics = course()
    for each in metrics[10:20]:
        del each["gradient_norm"], each["entropy"]
    assert watch(metrics, CONFIG).verdict.stage == "quiet"


def test_events_read_as_sentences():
    state = watch(course(success=then(0.7, 0.1)), CONFIG)
    assert describe(state.events[0]).startswith("iteration ")
    assert "success quiet -> " in describe(state.events[0])


def test_an_alarm_that_is_milder_than_its_warning_is_refused():
    raw = CONFIG.model_dump()
    raw["indicators"]["entropy"] = {"side": "below", "warning": 0.2, "alarm": 0.4}
    with pytest.raises(ValidationError, match="not worse"):
        MonitorConfig.model_validate(raw)
    raw["indicators"] = {"entropy": {"side": "below", "warning": 0.4, "alarm": 0.2}}
    with pytest.raises(ValidationError, match="success"):
        MonitorConfig.model_validate(raw)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                name: st.one_of(st.floats(0, 1), st.just(math.nan))
                for name in ("success", "return_std", "entropy")
            }
        ),
        max_size=30,
    )
)
def test_any_course_gives_a_state_whose_events_explain_its_stages(rows):
    state = watch(({"iteration": i, "return": 0.0} | row for i, row in enumerate(rows)), CONFIG)
    last = {}
    for event in state.events:
        assert event.before == last.get(event.indicator, "quiet")
        last[event.indicator] = event.after
    assert all(record.stage == last.get(name, "quiet") for name, record in state.records.items())
    assert state.verdict.stage == last.get("run", "quiet")
