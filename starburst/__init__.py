"""Starburst: a hybrid-cloud burst scheduler for GPU clusters."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starburst.client import Client
    from starburst.client.local import LocalClient

__version__ = "0.1.0"
__all__ = ["Client", "LocalClient", "__version__"]

_CLIENTS = {"Client": "starburst.client", "LocalClient": "starburst.client.local"}


def __getattr__(name: str) -> Any:
    """The clients are imported when they are asked for: few who import this package need one."""
    if name in _CLIENTS:
        return getattr(import_module(_CLIENTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
