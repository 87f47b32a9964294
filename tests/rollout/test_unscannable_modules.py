"""What other libraries leave in ``sys.modules`` does not keep the engine from starting."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from starpo.rollout.vllm_internals import unscannable_modules_hidden


class Raises:
    """Like a proxy of Flask's outside of a request."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            raise RuntimeError("working outside of a context")
        return object.__getattribute__(self, name)


class AnswersAnything:
    """Like llvmlite's library: no ``__dict__`` of its own, and an answer to every name."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return print


@pytest.mark.parametrize("value", [Raises(), AnswersAnything()], ids=["raises", "answers anything"])
def test_a_module_that_cannot_be_scanned_is_hidden_and_comes_back(monkeypatch, value: object) -> None:
    module, harmless = ModuleType("awkward"), ModuleType("harmless")
    module.value, harmless.value = value, object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "awkward", module)
    monkeypatch.setitem(sys.modules, "harmless", harmless)
    with unscannable_modules_hidden():
        assert "awkward" not in sys.modules
        assert sys.modules["harmless"] is harmless
        for other in list(sys.modules.values()):
            for attribute in list((getattr(other, "__dict__", None) or {}).values()):
                if hasattr(attribute, "__dict__"):
                    vars(attribute).get("kernel")
    assert sys.modules["awkward"] is module


def test_modules_come_back_after_an_error(monkeypatch) -> None:
    module = ModuleType("awkward")
    module.value = AnswersAnything()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "awkward", module)
    with pytest.raises(KeyError), unscannable_modules_hidden():
        raise KeyError
    assert sys.modules["awkward"] is module
