"""Starburst: a hybrid-cloud burst scheduler for GPU clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starburst.client import Client

__version__ = "0.1.0"
__all__ = ["Client", "__version__"]


def __getattr__(name: str) -> Any:
    """`Client` is imported when it is asked for: few who import this package speak HTTP."""
    if name == "Client":
        from starburst.client import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
