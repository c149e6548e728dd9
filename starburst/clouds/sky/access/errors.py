"""Maps exceptions of SkyPilot and its libraries to this package's errors; and limits the time of calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

from starburst.aio import running
from starburst.clouds.sky.access.ports import (
    CapacityError,
    SkyCredentialsError,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)

T = TypeVar("T")

#: Colour codes of terminals.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

#: Names of exceptions by what they mean here; the first match counts.
_MEANINGS: tuple[tuple[type[SkyError], tuple[str, ...]], ...] = (
    (SkyUnreachableError, ("KubeAPIUnreachableError",)),
    (CapacityError, ("ResourcesUnavailableError", "ProvisionPrechecksError")),
    (
        SkyCredentialsError,
        (
            "ApiServerAuthenticationError",
            "CloudUserIdentityError",
            "ClusterOwnerIdentityMismatchError",
            "InvalidCloudCredentials",
            "NoCloudAccessError",
            "PermissionDeniedError",
        ),
    ),
    (SkyNotFoundError, ("ClusterDoesNotExist",)),
    (
        SkyUnreachableError,
        (
            "ApiServerConnectionError",
            "ServerTemporarilyUnavailableError",
            "RequestInterruptedError",
            "ConcurrentWorkerExhaustedError",
            "ClusterStatusFetchingError",
            "ClusterNotUpError",
            "FetchClusterInfoError",
            "NetworkError",
            "CommandError",
            "SkyletUnavailableError",
            # of requests, aiohttp and the language
            "RequestException",
            "ClientError",
            "OSError",
            "TimeoutError",
        ),
    ),
)


#: What SkyPilot calls credentials that a cloud rejects in texts, where they are told as a lack of machines.
_REJECTED = re.compile(r"invalid cloud credentials|InvalidCloudCredentials", re.IGNORECASE)


class SlowError(SkyUnreachableError):
    """A call gave no answer in time; what it asked for may still happen."""


def meaning(error: BaseException) -> SkyError:
    """The error of this package for an exception of SkyPilot or its libraries."""
    if isinstance(error, SkyError):
        return error
    text = _words(error)
    kind = _kind(error)
    if kind is CapacityError:
        return _rejection(error) or CapacityError(text)
    if kind is not None:
        return kind(text)
    # Cases without a class of their own: a request id that the server does not know (its state was lost), and
    # a server that is down while the SDK must not start one of its own.
    if "Failed to get request" in text:
        return SkyNotFoundError(text) if ": 404" in text else SkyUnreachableError(text)
    if "local API server" in text or "Connection refused" in text:
        return SkyUnreachableError(text)
    return SkyError(text)


def _words(error: BaseException) -> str:
    return " ".join(COLOURS.sub("", str(error)).split()) or type(error).__name__


def _kind(error: BaseException) -> type[SkyError] | None:
    names = {kind.__name__ for kind in type(error).__mro__}
    return next((kind for kind, of in _MEANINGS if names & set(of)), None)


def _rejection(error: BaseException) -> SkyCredentialsError | None:
    """Why a launch that counts as without a machine to rent had none if its credentials were rejected.

    SkyPilot tries one zone after the other also then, and reports at the end that no resources are left.
    """
    for tried in (*getattr(error, "failover_history", ()), error):
        if _kind(tried) is SkyCredentialsError or _REJECTED.search(str(tried)):
            return SkyCredentialsError(_words(tried))
    return None


async def within(limit_s: float, call: Coroutine[Any, Any, T], whose: str = "SkyPilot's API server") -> T:
    """What a call returns.

    Raises:
        SkyError: the call failed; SlowError if it gave no answer in time.
    """
    try:
        return await in_time(limit_s, _contained(call), f"{whose} gave")
    except Exception as error:  # the SDK raises whatever the server sends, and whatever its libraries raise
        raise meaning(error) from error


async def _contained(call: Coroutine[Any, Any, T]) -> T:
    """What a call returns; an exit that it asks for is an error.

    SkyPilot's provisioner exits when a cloud refuses its credentials; its API server sends that exit to the
    client, which raises it. In a task it would end the event loop, and the scheduler with it.
    """
    try:
        return await call
    except SystemExit as error:
        raise SkyError(f"SkyPilot gave up with exit status {error.code}; see sky api logs") from error


async def in_time(limit_s: float, call: Coroutine[Any, Any, T], whose: str) -> T:
    """What a call returns within `limit_s` seconds; else it is cancelled, and has ended when this raises.

    A call is cancelled once, so that it may await during its cleanup; a cancel scope would cancel that too.

    Raises:
        SlowError: it took longer; the message begins with `whose`.
    """
    async with running(call, whose) as task:
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise SlowError(f"{whose} no answer within {limit_s:g} s")
        return task.result()
