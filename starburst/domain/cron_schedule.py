"""Schedules in the words of cron(8), as a Kubernetes CronJob has them, and the times at which they tick.

Times are instants, seconds since 1970. A schedule whose hours begin with `*` ticks by elapsed time. One of
fixed hours ticks by the clock on the wall, once for each time that it shows: a time that comes twice when the
clock is set back ticks when it comes first, and one that is skipped when the clock is set forward ticks later
by what was skipped. So a nightly job is neither run twice nor left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from starburst.domain.value import value

#: Schedules by name (robfig/cron, which Kubernetes uses).
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = dict(
    zip(
        ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
        range(1, 13),
        strict=True,
    )
)
_DAYS = dict(zip(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], range(7), strict=True))
_EVERY = re.compile(r"@every\s+(?=[0-9])(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_PART = re.compile(r"(\*|\?|[A-Za-z0-9]+)(?:-([A-Za-z0-9]+))?(?:/([0-9]+))?")
_ANY = ("*", "?")
#: Days of the months, in a leap year.
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: A job of a schedule is named by the minute; a tick beyond the calendar has no date to be shown.
_LEAST_EVERY_S, _MOST_EVERY_DAYS = 60, 3650
#: Characters of a schedule; Python reads no number of some thousand digits.
_LONGEST_TEXT = 1000


class ScheduleError(ValueError):
    """A schedule that is none; the message says what to write."""


@dataclass(frozen=True, slots=True)
class _FieldRange:
    """One of the five fields: its name, its bounds, and names of its values."""

    name: str
    least: int
    most: int
    names: Mapping[str, int]


_FIELDS = (
    _FieldRange("minutes", 0, 59, {}),
    _FieldRange("hours", 0, 23, {}),
    _FieldRange("days of the month", 1, 31, {}),
    _FieldRange("months", 1, 12, _MONTHS),
    _FieldRange("days of the week", 0, 7, _DAYS),
)


@value
class CronSchedule:
    """When something is to happen again and again; `zone` is a name of the IANA time zone database."""

    text: str
    zone: str
    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    #: 0 is Sunday.
    weekdays: frozenset[int] = frozenset()
    #: Whether the field of days, or of weekdays, is `*`: of two that are given one is enough.
    any_day: bool = True
    any_weekday: bool = True
    #: Whether the field of hours is `*`.
    any_hour: bool = False
    #: Of `@every`: seconds from tick to tick; 0 of others.
    every_s: int = 0

    def after(self, since: float, origin: float = 0.0) -> Iterator[float]:
        """The ticks after an instant, in order, without end; `origin` is where `@every` counts from.

        Raises:
            ScheduleError: this machine does not know the time zone any more; so does `last`.
        """
        if self.every_s:
            count = max(0, int((since - origin) // self.every_s))
            while True:
                count += 1
                yield origin + count * self.every_s
        zone, last = zone_of(self.zone), since
        day = datetime.fromtimestamp(since, zone).date() - timedelta(days=1)
        while day.year < date.max.year:
            for tick in self._on(day, zone):
                if tick > last:
                    last = tick
                    yield tick
            day += timedelta(days=1)

    def last(self, since: float, until: float, origin: float = 0.0) -> float | None:
        """The last tick after `since` and not after `until`; None if there is none."""
        if self.every_s:
            tick = origin + (until - origin) // self.every_s * self.every_s
            return tick if tick > max(since, origin) else None
        zone = zone_of(self.zone)
        day, first = (datetime.fromtimestamp(at, zone).date() for at in (until, since))
        day += timedelta(days=1)
        while day >= first - timedelta(days=1):
            found = [tick for tick in self._on(day, zone) if since < tick <= until]
            if found:
                return found[-1]
            day -= timedelta(days=1)
        return None

    def _on(self, day: date, zone: ZoneInfo) -> list[float]:
        """The ticks whose time on the clock is of this day."""
        if not self._falls_on(day):
            return []
        begin, end = (datetime.combine(each, time(), zone) for each in (day, day + timedelta(days=1)))
        offsets = {at.utcoffset() for at in (begin, end, end.replace(fold=1))}
        if len(offsets) == 1:  # the clock is not set on this day, so no time on it needs a look of its own
            midnight = begin.timestamp()
            return sorted(
                midnight + 3600 * hour + 60 * minute for hour in self.hours for minute in self.minutes
            )
        shown = [datetime.combine(day, time(hour, minute)) for hour in self.hours for minute in self.minutes]
        return sorted({tick for each in shown for tick in self._instants(each, zone)})

    def _falls_on(self, day: date) -> bool:
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        either = not (self.any_day or self.any_weekday)
        return day.month in self.months and ((by_day or by_weekday) if either else (by_day and by_weekday))

    def _instants(self, shown: datetime, zone: ZoneInfo) -> list[float]:
        """When a clock of the zone shows this: of fixed hours one instant, else none, one or two."""
        first = shown.replace(tzinfo=zone).timestamp()
        if not self.any_hour:
            return [first]
        both = (first, shown.replace(tzinfo=zone, fold=1).timestamp())
        return [at for at in both if datetime.fromtimestamp(at, zone).replace(tzinfo=None) == shown]


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name.

    Raises:
        ScheduleError: this machine knows none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"there is no time zone {name}; write one such as Europe/Berlin") from None


def read_schedule(text: str, zone: str) -> CronSchedule:
    """A schedule from its text: five fields, one of the names such as @daily, or @every 1h30m.

    Raises:
        ScheduleError: it is none, or no day comes on which it ticks, or the zone is not known.
    """
    zone_of(zone)
    text = " ".join(text.split())
    if len(text) > _LONGEST_TEXT:
        raise ScheduleError(f"has more than {_LONGEST_TEXT} characters")
    every = _EVERY.fullmatch(text)
    if every is not None:
        return CronSchedule(text, zone, every_s=_seconds(every))
    if text.startswith(("TZ=", "CRON_TZ=")):
        raise ScheduleError("name the time zone in spec.timeZone")
    words = _NAMED.get(text.lower(), text).split()
    if len(words) != len(_FIELDS):
        raise ScheduleError(
            "must be five fields (minute hour day month weekday), @daily and its like, or @every 2h30m"
        )
    minutes, hours, days, months, weekdays = (
        frozenset(_values(word, limits)) for word, limits in zip(words, _FIELDS, strict=True)
    )
    any_day, any_weekday = words[2] in _ANY, words[4] in _ANY
    if any_weekday and not any(day <= _LONGEST[month - 1] for month in months for day in days):
        raise ScheduleError("is of a day that never comes")
    return CronSchedule(
        text=text,
        zone=zone,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        any_day=any_day,
        any_weekday=any_weekday,
        any_hour=words[1].startswith(_ANY),
    )


def _seconds(every: re.Match[str]) -> int:
    hours, minutes, seconds = (int(part or 0) for part in every.groups())
    total = (hours * 60 + minutes) * 60 + seconds
    if total < _LEAST_EVERY_S:
        raise ScheduleError("must be at least a minute")
    if total > _MOST_EVERY_DAYS * 86_400:
        raise ScheduleError(f"must be at most {_MOST_EVERY_DAYS} days")
    return total


def _values(word: str, limits: _FieldRange) -> Iterator[int]:
    """The values of a field: numbers, names, ranges and steps, with commas between them."""
    for part in word.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise ScheduleError(
                f"{limits.name}: {part!r} is not a number, a range such as 1-5, or a step such as */2"
            )
        first, last, step = found.groups()
        top = 6 if limits.names is _DAYS else limits.most  # 7 is Sunday too, where it is written
        if first in _ANY:
            low, high = limits.least, top
        else:
            low = _number(first, limits)
            high = top if step and not last else low
        if last:
            high = _number(last, limits)
        if high < low or (step and not int(step)):
            raise ScheduleError(f"{limits.name}: {part!r} has no values")
        yield from range(low, high + 1, int(step or 1))


def _number(word: str, limits: _FieldRange) -> int:
    found = limits.names.get(word.upper(), int(word) if word.isdigit() else -1)
    if not limits.least <= found <= limits.most:
        raise ScheduleError(f"{limits.name}: {word!r} is not from {limits.least} to {limits.most}")
    return found
