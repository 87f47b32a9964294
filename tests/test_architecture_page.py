"""The table of rooms in docs/architecture.md is the import graph of the code."""

from __future__ import annotations

import re
from pathlib import Path

import grimp

PAGE = Path(__file__).resolve().parents[1] / "docs/architecture.md"
ROW = re.compile(r"^\| `src/starpo/(\w+)` \| (.*) \| (.*) \|$", re.MULTILINE)


def imports_between_rooms() -> dict[str, set[str]]:
    """The rooms that each room imports directly; a room is a package right under ``starpo``."""
    graph = grimp.build_graph("starpo", cache_dir=None)
    rooms = {child for child in graph.find_children("starpo") if graph.find_children(child)}
    return {
        room.removeprefix("starpo."): {
            other.removeprefix("starpo.")
            for other in rooms - {room}
            if graph.direct_import_exists(importer=room, imported=other, as_packages=True)
        }
        for room in rooms
    }


def table(imports: dict[str, set[str]]) -> str:
    """The rows as they must be, in the page's order, with the page's words; new rooms come last."""
    words = {room: what for room, what, _ in ROW.findall(PAGE.read_text())}
    order = [*(room for room in words if room in imports), *sorted(imports.keys() - words.keys())]
    return "\n".join(
        f"| `src/starpo/{room}` | {words.get(room, '?')} | {', '.join(sorted(imports[room]))} |"
        for room in order
    )


def test_the_page_has_a_row_for_every_room_with_exactly_what_it_imports():
    written = {room: set(knows.split(", ")) - {""} for room, _, knows in ROW.findall(PAGE.read_text())}
    imports = imports_between_rooms()
    assert written == imports, f"the rows of {PAGE.name} must be:\n{table(imports)}"
