"""Times as text: for people in the local zone, for programs in RFC 3339."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

#: 8,000 years after the epoch, seconds; times after the year 9999 exceed the calendar.
FAR_S = 8000 * 365.25 * 86_400


def local_clock(now: float) -> Callable[[float], str]:
    """A formatter of local times: "14:32"; with seconds if near, with the date if not today."""

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


def local_heading(heading: str, now: float) -> str:
    """The heading of a column of local times: with their zone, unless that is UTC."""
    moment = datetime.fromtimestamp(min(now, FAR_S)).astimezone()
    return f"{heading} ({moment.tzname()})" if moment.utcoffset() else heading


def iso(at: float | None) -> str | None:
    """A time in RFC 3339, UTC; None for None and for times beyond the calendar."""
    if at is None or at > FAR_S:
        return None
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def age(seconds: float) -> str:
    """A duration as kubectl prints it: 45s, 12m, 3h20m, 5d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    if whole < 172_800:
        minutes = whole % 3600 // 60
        return f"{whole // 3600}h{f'{minutes}m' if minutes else ''}"
    return f"{whole // 86_400}d"
