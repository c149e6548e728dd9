"""What SkyPilot's exceptions, and those of its libraries, mean here; and calls that take too long."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

from starburst.clouds.sky.access.ports import (
    CapacityError,
    SkyCredentialsError,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)

T = TypeVar("T")

#: Colours, for a terminal.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

#: SkyPilot's exceptions by what they mean here; the first that fits counts.
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


class SlowError(SkyUnreachableError):
    """No answer in time."""


def meaning(error: BaseException) -> SkyError:
    """A SkyPilot exception as one of ours."""
    if isinstance(error, SkyError):
        return error
    names = {kind.__name__ for kind in type(error).__mro__}
    text = " ".join(COLOURS.sub("", str(error)).split()) or type(error).__name__
    for kind, of in _MEANINGS:
        if names & set(of):
            return kind(text)
    # What the SDK knows by its words only: an id no server knows (after its state was lost), and a server
    # that is down while we forbid the SDK to start one of its own.
    if "Failed to get request" in text:
        return SkyNotFoundError(text) if ": 404" in text else SkyUnreachableError(text)
    if "local API server" in text or "Connection refused" in text:
        return SkyUnreachableError(text)
    return SkyError(text)


async def within(limit_s: float, call: Coroutine[Any, Any, T], whose: str = "SkyPilot's API server") -> T:
    """What a call returns, its errors as ours.

    Raises:
        SkyError: it failed; SlowError if it gave no answer in time.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise SlowError(f"{whose} gave no answer within {limit_s:g} s")
        return task.result()
    except Exception as error:  # the SDK raises whatever the server sends, and whatever its libraries do
        raise meaning(error) from error
    finally:
        task.cancel()
