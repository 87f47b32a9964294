"""Names on disk and in the catalog: what is built is read back, and the catalog spells the same paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from projects import SOURCE

from starpo.store.layout import (
    Address,
    Entry,
    Layer,
    Played,
    RunPaths,
    comparison_name,
    iteration_name,
    number_of,
    parse_entry,
    policy_name,
    reference_name,
    suite_of,
)

SUITES = st.from_regex(r"[a-z][a-z0-9_]{0,12}[a-z0-9]", fullmatch=True).filter(lambda name: "__" not in name)
TEMPERATURES = st.integers(1, 200).map(lambda hundredths: hundredths / 100)
PLAYED = st.builds(Played, SUITES, TEMPERATURES, st.booleans())
NUMBERS = st.integers(0, 123_456)


@given(PLAYED, NUMBERS)
def test_an_evaluations_names_are_read_back(played: Played, step: int) -> None:
    assert Played.parse(played.folder) == played
    assert suite_of(played.folder) == ("against-" if played.against else "") + played.suite
    for kind in ("turns", "summary", "labels", "seconds"):
        assert parse_entry(f"{played.entry(step)}.{kind}") == Entry(kind, step, played)


@given(NUMBERS)
def test_an_iterations_names_are_read_back(number: int) -> None:
    for kind in ("rollouts", "scored", "updates", "metrics"):
        assert parse_entry(f"{iteration_name(number)}.{kind}") == Entry(kind, number)
    assert parse_entry(policy_name(number)) == Entry("policy", number)
    assert parse_entry(comparison_name(number)) == Entry("comparison", number)
    assert number_of(Path(policy_name(number))) == number
    assert number_of(Path(f"{iteration_name(number)}.parquet")) == number


@given(PLAYED, NUMBERS, st.sampled_from(["", "/abs/project", "data/nested"]))
def test_a_path_says_what_lies_there(played: Played, number: int, root: str) -> None:
    paths = RunPaths(Path(root), "my-run.2")
    assert Address.parse(paths.evaluation(played, number)) == Address(paths, Layer.EVALUATION, number, played)
    for layer in (Layer.ROLLOUTS, Layer.SCORED, Layer.UPDATES):
        assert Address.parse(paths.table(layer, number)) == Address(paths, layer, number)


@pytest.mark.parametrize(
    "path", ["table.parquet", "data/iter_0000.parquet", "other/02_rollouts/run/iter_0000.parquet"]
)
def test_a_path_outside_of_runs_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not in a run's folder"):
        Address.parse(Path(path))


@pytest.mark.parametrize(
    "name", ["engine", "base_policy", "report", "reference__test", "params:run", "iter_x.scored"]
)
def test_entries_that_are_no_runs_own_have_no_meaning(name: str) -> None:
    assert parse_entry(name) is None


def test_what_is_stored_is_found_by_number_and_nothing_else(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path, "lake")
    files = [
        paths.table(Layer.ROLLOUTS, 2),
        paths.table(Layer.ROLLOUTS, 10_000),
        paths.folder(Layer.ROLLOUTS) / "rejected/iter_0001.parquet",
        paths.folder(Layer.ROLLOUTS) / ".iter_0003.parquet.99.tmp",
        paths.evaluation(Played("test", 0.5), 3),
        paths.evaluation(Played("test", 0.5), 3).with_suffix(".json"),
        paths.folder(Layer.EVALUATION) / "reference/test.json",
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert list(paths.tables(Layer.ROLLOUTS)) == [2, 10_000]
    assert list(paths.evaluations("turns")) == [("test-t0_5", 3)]
    assert list(paths.evaluations("summary")) == [("test-t0_5", 3)]
    assert paths.metrics() == paths.policies() == {}


def catalog_paths() -> dict[str, str]:
    catalog: dict[str, dict[str, Any]] = yaml.safe_load((SOURCE / "conf/base/catalog.yml").read_text())
    return {name: entry["filepath"] for name, entry in catalog.items() if "filepath" in entry}


def test_the_catalog_spells_the_same_paths() -> None:
    paths, played, other = RunPaths(Path(), "RUN"), Played("test", 0.5), Played("test", 0.5, against=True)
    expected = {
        policy_name(7): paths.policy(7),
        comparison_name(7): paths.folder(Layer.REPORTING) / "comparison_0007.json",
    }
    expected |= {
        f"{iteration_name(7)}.{kind}": paths.table(layer, 7)
        for kind, layer in (
            ("rollouts", Layer.ROLLOUTS),
            ("scored", Layer.SCORED),
            ("updates", Layer.UPDATES),
        )
    }
    expected[f"{iteration_name(7)}.metrics"] = paths.table(Layer.UPDATES, 7).with_suffix(".json")
    for each in (played, other):
        table = paths.evaluation(each, 7)
        expected |= {
            f"{each.entry(7)}.turns": table,
            f"{each.entry(7)}.summary": table.with_suffix(".json"),
            f"{each.entry(7)}.labels": table.with_name("labels_0007.parquet"),
            f"{each.entry(7)}.seconds": paths.turn_seconds(each, 7),
        }
    expected |= {
        "evaluation_overview": paths.overview,
        reference_name("test"): paths.folder(Layer.EVALUATION) / "reference/test.json",
    }
    found = catalog_paths()
    for name, path in expected.items():
        patterns = [pattern for pattern in found if _matches(pattern, name)]
        assert len(patterns) == 1, (name, patterns)
        assert _filled(found[patterns[0]], patterns[0], name) == str(path), name


def _matches(pattern: str, name: str) -> bool:
    import parse

    return parse.parse(pattern, name) is not None


def _filled(path: str, pattern: str, name: str) -> str:
    import parse

    found = parse.parse(pattern, name)
    assert found is not None
    return path.replace("${run:name}", "RUN").format(**found.named)
