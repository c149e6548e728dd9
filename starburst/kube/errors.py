"""Errors of calls to an API server."""

from __future__ import annotations

from typing import Any

#: The longest Retry-After that is obeyed.
LONGEST_PAUSE_S = 30.0


class ApiError(Exception):
    """The server refused a call. `reason` is Kubernetes' word, such as NotFound or Conflict.

    `retry_after_s`: how long the server asks to wait, at most LONGEST_PAUSE_S. `causes`: "field: message" of
    each invalid field. `name` of the object that it is about, if it says so.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_s: float = 0.0,
        causes: tuple[str, ...] = (),
        *,
        name: str = "",
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.name = name
        self.retry_after_s = min(retry_after_s, LONGEST_PAUSE_S)

    @property
    def absent(self) -> bool:
        """Whether the server has no object of that name.

        Any other 404 says nothing of objects: the kind is not served (now), or a proxy answered.
        """
        return self.status == 404 and self.reason == "NotFound" and bool(self.name)


class ApiUnreachableError(Exception):
    """There was no answer in time: the call may have been carried out, unless it was never `sent`."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class NotLeadingError(ApiUnreachableError):
    """A write was not sent, since this process does not hold the Lease; it may be tried again later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class LeaseLostError(Exception):
    """A Lease was not renewed in time, or another process holds it."""


class KubeCredentialsError(Exception):
    """There is no usable kubeconfig."""


def refusal(status: int, told: dict[str, Any], after_s: float = 0.0) -> ApiError:
    """The error that a v1 Status describes."""
    details = told.get("details") or {}
    after_s = after_s or float(details.get("retryAfterSeconds") or 0)
    causes = [f"{each.get('field')}: {each.get('message')}" for each in details.get("causes") or ()]
    return ApiError(
        status,
        str(told.get("reason", "")),
        str(told.get("message", "")),
        after_s,
        tuple(" ".join(cause.split()) for cause in dict.fromkeys(causes)),
        name=str(details.get("name") or ""),
    )
