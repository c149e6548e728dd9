"""When schedules tick: fields, names, steps, zones, clocks that are set, leap days."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from starburst.domain.cron_schedule import CronSchedule, ScheduleError, read_schedule
from starburst.domain.cron_timing import CronTiming

NEW_YORK = "America/New_York"


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def ticks(schedule: str, since: str, count: int, zone: str = "UTC") -> list[str]:
    """The next ticks, as the clock of the zone shows them."""
    found = islice(read_schedule(schedule, zone).after(at(since, zone)), count)
    return [datetime.fromtimestamp(tick, ZoneInfo(zone)).strftime("%a %d %b %Y %H:%M %z") for tick in found]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("*/20 9-10 * * *", ["Tue 24 Nov 2026 09:00", "Tue 24 Nov 2026 09:20", "Tue 24 Nov 2026 09:40"]),
        ("0 3 * * mon-FRI", ["Tue 24 Nov 2026 03:00", "Wed 25 Nov 2026 03:00", "Thu 26 Nov 2026 03:00"]),
        ("0 0 * * 7", ["Sun 29 Nov 2026 00:00", "Sun 06 Dec 2026 00:00"]),
        ("30 4 1,15 * 5", ["Fri 27 Nov 2026 04:30", "Tue 01 Dec 2026 04:30", "Fri 04 Dec 2026 04:30"]),
        ("0 12 ? JAN-MAR/2 *", ["Fri 01 Jan 2027 12:00", "Sat 02 Jan 2027 12:00"]),
        ("0 0 29 2 *", ["Tue 29 Feb 2028 00:00", "Sun 29 Feb 2032 00:00"]),
        ("5/25 * * * *", ["Mon 23 Nov 2026 12:05", "Mon 23 Nov 2026 12:30", "Mon 23 Nov 2026 12:55"]),
        ("@hourly", ["Mon 23 Nov 2026 13:00", "Mon 23 Nov 2026 14:00"]),
        ("@weekly", ["Sun 29 Nov 2026 00:00"]),
        ("@yearly", ["Fri 01 Jan 2027 00:00", "Sat 01 Jan 2028 00:00"]),
    ],
)
def test_a_schedule_ticks_when_its_fields_say(schedule: str, expected: list[str]) -> None:
    assert ticks(schedule, "2026-11-23T12:00", len(expected)) == [f"{each} +0000" for each in expected]


def test_every_counts_from_the_beginning() -> None:
    every = read_schedule("@every 1h30m", "UTC")
    assert list(islice(every.after(6000.0, origin=1000.0), 2)) == [6400.0, 11_800.0]
    assert (every.last(0.0, 6399.0, 1000.0), every.last(0.0, 6400.0, 1000.0)) == (None, 6400.0)


def test_a_time_that_the_clock_skips_ticks_later_and_once() -> None:
    shown = ticks("30 2,3 * * *", "2026-03-08T00:00", 3, NEW_YORK)
    assert shown == [
        "Sun 08 Mar 2026 03:30 -0400",
        "Mon 09 Mar 2026 02:30 -0400",
        "Mon 09 Mar 2026 03:30 -0400",
    ]


def test_a_time_that_comes_twice_ticks_once_and_an_hourly_schedule_in_each_hour() -> None:
    assert ticks("30 1 * * *", "2026-11-01T00:00", 2, NEW_YORK) == [
        "Sun 01 Nov 2026 01:30 -0400",
        "Mon 02 Nov 2026 01:30 -0500",
    ]
    assert [shown[-11:] for shown in ticks("0 * * * *", "2026-11-01T00:00", 3, NEW_YORK)] == [
        "01:00 -0400",
        "01:00 -0500",
        "02:00 -0500",
    ]


@pytest.mark.parametrize(
    ("schedule", "zone", "problem"),
    [
        ("* * * *", "UTC", "must be five fields"),
        ("60 * * * *", "UTC", "minutes: '60' is not from 0 to 59"),
        ("0 0 * * FUN", "UTC", "days of the week: 'FUN' is not from 0 to 7"),
        ("0 0 31 2,4 *", "UTC", "is of a day that never comes"),
        ("*/0 * * * *", "UTC", "has no values"),
        ("*/00 * * * *", "UTC", "has no values"),
        ("9-5 * * * *", "UTC", "has no values"),
        ("@every 30s", "UTC", "must be at least a minute"),
        ("@every 9999999999h", "UTC", "must be at most 3650 days"),
        (f"@every {'9' * 400}h", "UTC", "must be at most 3650 days"),
        (f"{'9' * 5000} * * * *", "UTC", "has more than 1000 characters"),
        ("TZ=UTC 0 0 * * *", "UTC", r"name the time zone in spec\.timeZone"),
        ("0 0 * * *", "Mars/Olympus", "there is no time zone Mars/Olympus"),
        ("0 0 * * *", "../etc/passwd", "there is no time zone"),
        ("1-2-3 * * * *", "UTC", "is not a number, a range"),
        ("²/3 * * * *", "UTC", "is not a number, a range"),
    ],
)
def test_a_schedule_that_is_none_is_refused_by_its_field(schedule: str, zone: str, problem: str) -> None:
    with pytest.raises(ScheduleError, match=problem):
        read_schedule(schedule, zone)


@settings(max_examples=40, deadline=None)
@given(
    fields=st.tuples(
        st.sampled_from(["*/10", "0", "30", "5,55", "0-59/7"]),
        st.sampled_from(["*", "*/2", "0", "1", "2", "2,3", "23"]),
        st.sampled_from(["*", "1", "28-31", "*/9"]),
        st.sampled_from(["*", "2-4", "OCT,NOV"]),
        st.sampled_from(["*", "SUN", "1-5"]),
    ),
    zone=st.sampled_from([NEW_YORK, "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"]),
    since=st.integers(int(at("2011-10-01T00:00")), int(at("2028-12-01T00:00"))),
)
def test_ticks_rise_and_the_last_one_is_what_came_before(
    fields: tuple[str, ...], zone: str, since: int
) -> None:
    schedule = read_schedule(" ".join(fields), zone)
    found = list(islice(schedule.after(since), 30))
    assert since < found[0]
    assert all(earlier < later for earlier, later in pairwise(found))
    assert schedule.last(since, found[0] - 1) is None
    assert all(schedule.last(since, tick) == tick for tick in found[::7])
    assert all(schedule.last(since, later - 1) == earlier for earlier, later in pairwise(found[:5]))
    if fields[1] not in ("*", "*/2"):  # of fixed hours no time of a clock ticks twice
        shown = [datetime.fromtimestamp(tick, ZoneInfo(zone)).replace(tzinfo=None) for tick in found]
        assert len(set(shown)) == len(shown)


def test_a_schedule_of_each_minute_is_looked_at_without_a_conversion_of_each_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler looks at every CronJob every few seconds, and anybody may submit many."""
    asked: list[datetime] = []
    instants = CronSchedule._instants

    def counted(schedule: CronSchedule, shown: datetime, zone: ZoneInfo) -> list[float]:
        asked.append(shown)
        return instants(schedule, shown, zone)

    monkeypatch.setattr(CronSchedule, "_instants", counted)
    minutely, now = CronTiming(read_schedule("* * * * *", "Europe/Berlin")), at("2026-11-23T05:00:30")
    assert minutely.due(now - 5, now, now - 86_400) is None
    assert minutely.due(now - 60, now, now - 86_400) == now - 30
    assert minutely.next(now, now - 86_400) == now + 30
    assert asked == []
    assert ticks("59 1,2 * * *", "2026-10-24T12:00", 2, "Europe/Berlin") == [
        "Sun 25 Oct 2026 01:59 +0200",
        "Sun 25 Oct 2026 02:59 +0200",
    ]
    assert asked != []  # on a day on which the clock is set


@example("America/St_Johns", date(2010, 11, 6), "*")  # where the clock was set back at 00:01
@example("America/Sao_Paulo", date(2018, 2, 17), "*")
@example("Antarctica/Casey", date(2010, 3, 4), "0-23")
@given(
    zone=st.sampled_from(
        ["America/Havana", "America/Sao_Paulo", "Africa/Casablanca", "Pacific/Apia", NEW_YORK]
    ),
    day=st.dates(date(1995, 1, 1), date(2030, 12, 31)),
    hours=st.sampled_from(["*", "0-23"]),
)
def test_the_ticks_of_a_day_are_those_times_that_the_clock_shows(zone: str, day: date, hours: str) -> None:
    """Also where the clock is set at midnight, or a day is skipped."""
    schedule, place = read_schedule(f"0,59 {hours} * * *", zone), ZoneInfo(zone)
    shown = [datetime.combine(day, time(hour, minute)) for hour in range(24) for minute in (0, 59)]
    expected = sorted({tick for each in shown for tick in schedule._instants(each, place)})
    assert schedule._on(day, place) == expected


def test_after_being_down_the_last_missed_tick_is_due_within_its_deadline() -> None:
    created, now = at("2026-11-20T00:00"), at("2026-11-23T05:00")
    nightly = read_schedule("0 2 * * *", "UTC")
    last = at("2026-11-20T02:00")
    assert CronTiming(nightly).due(last, now, created) == at("2026-11-23T02:00")
    assert CronTiming(nightly, starting_deadline_s=3600).due(last, now, created) is None
    assert CronTiming(nightly, starting_deadline_s=3 * 3600 + 1).due(last, now, created) == at(
        "2026-11-23T02:00"
    )
    assert CronTiming(nightly).due(at("2026-11-23T02:00"), now, created) is None
    suspended = CronTiming(nightly, suspended=True)
    assert (suspended.due(last, now, created), suspended.next(now, created)) == (None, None)
    assert CronTiming(nightly).next(now, created) == now + timedelta(hours=21).total_seconds()
