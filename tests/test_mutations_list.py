"""The list of faults that ``mutations.py`` tries still speaks of the code as it is."""

from __future__ import annotations

from mutations import PROJECT, lost_fragments, read_list


def test_every_fragment_occurs_exactly_once_in_its_file() -> None:
    assert lost_fragments(read_list()["fault"]) == []


def test_every_fault_has_its_own_name_changes_something_and_names_tests_that_exist() -> None:
    faults = read_list()["fault"]
    assert len({fault["name"] for fault in faults}) == len(faults) >= 44
    assert all(fault["before"] != fault["after"] for fault in faults)
    assert all(
        fault["tests"] and all((PROJECT / path.split("::")[0]).exists() for path in fault["tests"])
        for fault in faults
    )
