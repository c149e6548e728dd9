"""The server that was named; apart, for everything starts with it and little may be imported."""

from __future__ import annotations

from contextvars import ContextVar

#: Its URL; "" is none: the home is asked.
chosen: ContextVar[str] = ContextVar("chosen", default="")
