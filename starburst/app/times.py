"""Times as people and programs read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

#: From here on, 9 000 years after the epoch, a time is past every calendar.
FAR_S = 9000 * 365.25 * 86_400


def local_clock(now: float) -> Callable[[float], str]:
    """Says a time in the local zone: "14:32"; with seconds when near, with the day when not today."""

    def say(at: float) -> str:
        if at > FAR_S:
            return "the end of time"
        moment, today = (datetime.fromtimestamp(min(t, FAR_S)).astimezone() for t in (at, now))
        if moment.year != today.year:
            return f"{moment:%d %b %Y %H:%M}"
        if moment.date() != today.date():
            return f"{moment:%d %b %H:%M}"
        return f"{moment:%H:%M:%S}" if abs(at - now) < 600 else f"{moment:%H:%M}"

    return say


def iso(at: float | None) -> str | None:
    """A time in RFC 3339, UTC, for programs; None stays None, and so does one past every calendar."""
    if at is None or at > FAR_S:
        return None
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def age(seconds: float) -> str:
    """A span as kubectl says it: 45s, 12m, 3h20m, 5d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    if whole < 172_800:
        minutes = whole % 3600 // 60
        return f"{whole // 3600}h{f'{minutes}m' if minutes else ''}"
    return f"{whole // 86_400}d"
