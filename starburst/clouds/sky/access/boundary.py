"""The boundary to foreign code: whatever a port raises arrives as an error of this package, its words kept.

SkyPilot, the libraries of clouds and ssh raise more than their documents name. Such an error tells neither
that something was done nor that it was not, and nothing about a machine. So it becomes the error of a call
without an answer, which every caller tries again after looking how things stand.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import structlog

from starburst.clouds.sky.access.ports import SkyError

Port = TypeVar("Port")

log = structlog.get_logger()


def contained(port: Port, foreign: type[SkyError]) -> Port:
    """The same port, whose coroutines raise `SkyError` only: `foreign` for every other error."""
    return cast("Port", _Boundary(port, foreign))


class _Boundary:
    def __init__(self, port: object, foreign: type[SkyError]) -> None:
        self._port = port
        self._foreign = foreign

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found):
            return found
        guarded = _guarded(found, self._foreign)
        setattr(self, name, guarded)  # it is found there from now on
        return guarded


def _guarded(call: Callable[..., Any], foreign: type[SkyError]) -> Callable[..., Any]:
    @wraps(call)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return await call(*args, **kwargs)
        except SkyError:
            raise
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
            log.warning("foreign-error", call=call.__name__, error=words)
            raise foreign(words) from error

    return guarded
