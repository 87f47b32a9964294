"""StarPO: trajectory-level reinforcement learning of LLM agents, as a Kedro workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starpo.store.runs import open_run

__version__ = "0.1.0"
__all__ = ["__version__", "open_run"]


def __getattr__(name: str) -> Any:
    # On first use only: ``import starpo`` is on the way of every kedro command.
    if name == "open_run":
        from starpo.store.runs import open_run  # noqa: PLC0415

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
