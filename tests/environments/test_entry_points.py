"""Environments of installed distributions, found by their entry points."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from starpo.environments.contract import check_environment
from starpo.environments.registry import make, recipe, registered_names

SOURCE = """
from starpo.environments.base import TextEnvironment


class Door(TextEnvironment):
    rules = "Open the door."
    action_names = ("Push", "Pull")
    return_range = (0.0, 1.0)

    def __init__(self, *, heavy: bool = False) -> None:
        super().__init__()
        self.heavy = heavy

    def _begin(self, instance):
        self._right = self.action_names[int(instance.integers(2))]
        return f"door {instance.integers(10**6)} opens by {self._right}", {"success": False}

    def _act(self, action):
        won = action == self._right
        return "open" if won else "shut", float(won), True, False, {"success": won, "effective": won}


not_callable = 3
"""


def install(folder: Path, distribution: str, module: str, **entries: str) -> None:
    """What installing a wheel leaves behind: the module, and metadata beside it."""
    (folder / f"{module}.py").write_text(SOURCE)
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {target}" for name, target in entries.items())
    (info / "entry_points.txt").write_text(f"[starpo.environments]\n{lines}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on ``sys.path``, as site-packages is."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [
        name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))
    ]:
        del sys.modules[name]


def test_an_installed_environment_is_known_by_its_name_and_imported_when_it_is_used(site: Path) -> None:
    install(site, "doors", "doors_for_starpo", door="doors_for_starpo:Door")
    assert "door" in registered_names()
    assert recipe("door", heavy=True).target == "doors_for_starpo:Door"
    assert "doors_for_starpo" not in sys.modules, "looking up imports nothing"
    env = make("door", heavy=True)
    assert env.heavy  # type: ignore[attr-defined]
    check_environment(env, name="door")


def test_a_name_of_two_distributions_is_refused_naming_both(site: Path) -> None:
    install(site, "doors", "doors_for_starpo", door="doors_for_starpo:Door", gate="doors_for_starpo:Door")
    install(site, "more-doors", "more_doors", door="more_doors:Door", gate="doors_for_starpo:Door")
    with pytest.raises(
        ValueError, match="'door' is offered twice: 'doors_for_starpo:Door' of the distribution doors"
    ):
        make("door")
    assert make("gate").rules, "the same class twice is no clash"
    assert make("more_doors:Door").rules, "the way out that the message names"


def test_a_built_in_name_cannot_be_taken(site: Path) -> None:
    install(site, "doors", "doors_for_starpo", bandit="doors_for_starpo:Door")
    with pytest.raises(ValueError, match=r"'bandit' is registered as .*the distribution doors offers"):
        make("bandit")
    assert make("frozen_lake").rules, "other names are not affected"


@pytest.mark.parametrize(
    ("target", "kind", "message"),
    [
        (
            "no_such_module:Door",
            ValueError,
            "'door': cannot import 'no_such_module:Door' .ModuleNotFoundError",
        ),
        (
            "doors_for_starpo:Window",
            ValueError,
            "'door': cannot import 'doors_for_starpo:Window' .AttributeError",
        ),
        ("doors_for_starpo:not_callable", TypeError, "'door': .* is not a class or function"),
        (
            "fractions:Fraction",
            TypeError,
            "'door': .*built a Fraction, expected a subclass of .*TextEnvironment",
        ),
    ],
)
def test_a_broken_entry_point_says_what_is_wrong(
    site: Path, target: str, kind: type[Exception], message: str
) -> None:
    install(site, "doors", "doors_for_starpo", door=target)
    with pytest.raises(kind, match=message):
        make("door")


def test_a_module_that_fails_at_its_import_is_named_with_its_error(site: Path) -> None:
    install(site, "doors", "doors_for_starpo", door="doors_for_starpo:Door")
    (site / "doors_for_starpo.py").write_text("1 / 0\n")
    with pytest.raises(
        ValueError, match=r"cannot import 'doors_for_starpo:Door' .ZeroDivisionError: division by zero"
    ):
        make("door")
