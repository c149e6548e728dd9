"""What counts as spent: a machine while it is billed, at its price, in its window, for those who have it."""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.core.model.events import InstanceFailed, InstanceGone, InstanceReady
from starburst.domain.money import Money
from starburst.policy.caps import PERIODS, window
from starburst.policy.cost_allocation import Use, divide
from tests.builders import HOUR, job
from tests.core.capped import DAY, MACHINE, cap, capped, cloud, reserved, spent


def test_a_machine_that_comes_up_counts_from_when_it_was_asked_for_until_it_says_more() -> None:
    desk = capped(cap(30))
    desk.submit(cloud("a"))
    desk.now = 0.1 * HOUR
    assert (spent(desk), reserved(desk)) == (1, 10)
    desk.ready("i-000001")
    assert (spent(desk), reserved(desk)) == (0, 10)


def test_a_machine_counts_until_it_is_gone_and_then_as_long_as_it_was_billed() -> None:
    desk = capped(cap(100))
    desk.submit(cloud("a"))
    desk.offload("a")
    desk.now = HOUR
    desk.ended("a")
    desk.now = 1.5 * HOUR
    assert (spent(desk), reserved(desk)) == (15, 0)
    desk.tell(InstanceGone("i-000001", 0.0, 1.2 * HOUR))
    assert spent(desk) == 12
    assert desk["a"].cloud_micro_usd == 12_000_000


def test_a_week_begins_on_monday() -> None:
    monday = datetime(2026, 11, 23, tzinfo=timezone.utc).timestamp()
    for at in (monday, monday + 3 * DAY, monday + 7 * DAY - 1):
        assert window("week", at) == (monday, monday + 7 * DAY)


def test_a_launch_that_failed_counts_as_it_was_billed() -> None:
    desk = capped(cap(100))
    desk.submit(cloud("a"))
    desk.now = HOUR
    desk.tell(InstanceFailed("i-000001", "broken", False, 0.0, 0.5 * HOUR))
    assert spent(desk) == 5


def test_of_a_launch_of_several_that_failed_each_window_pays_for_the_seconds_of_each() -> None:
    desk = capped(cap(100), cap(500, "month"))
    desk.now = DAY - HOUR
    desk.submit(job("a", gang=(4, 4), cloud="only"))
    desk.now = DAY + HOUR
    ended = InstanceFailed("i-000001", "broken", False, DAY - HOUR, DAY + HOUR, lost=((1, DAY - 0.5 * HOUR),))
    desk.tell(ended)
    assert (spent(desk), spent(desk, "cap/month")) == (10, 25)
    assert desk["a"].cloud_micro_usd == 25_000_000


def test_each_window_pays_for_its_own_seconds_however_late_one_hears_of_them() -> None:
    desk = capped(cap(100), cap(500, "month"))
    desk.now = DAY - HOUR
    desk.submit(cloud("a", hours=5), cloud("b", hours=5))
    desk.ready("i-000001", "i-000002")
    desk.started("a", "b")
    desk.now = DAY + HOUR
    assert (spent(desk), spent(desk, "cap/month")) == (20, 40)
    desk.tell(InstanceGone("i-000001", DAY - HOUR, DAY - 0.5 * HOUR), desk.end_of("b"))
    assert (spent(desk), spent(desk, "cap/month")) == (10, 25)
    desk.tell(InstanceGone("i-000002", DAY - 2 * HOUR, DAY + 0.5 * HOUR))
    assert (spent(desk), spent(desk, "cap/month")) == (5, 30)


def test_a_shared_machine_is_paid_by_those_who_have_it_moment_by_moment() -> None:
    desk = capped(cap(100), cap(50, user="ada"), cap(50, user="bob"), offers=[MACHINE], packer="eva")
    ada, bob = job("a", 3, hours=2, cloud="only", user="ada"), job("b", 1, hours=1, cloud="only", user="bob")
    desk.submit(ada, bob)
    desk.ready("i-000001")
    desk.started("a", "b")
    assert (reserved(desk, "cap/day/user=ada"), reserved(desk, "cap/day/user=bob")) == (17.5, 2.5)
    desk.now = HOUR
    desk.ended("b")
    desk.now = 2 * HOUR
    assert (spent(desk, "cap/day/user=ada"), spent(desk, "cap/day/user=bob")) == (17.5, 2.5)
    desk.ended("a")
    desk.gone("i-000001")
    assert (desk["a"].cloud_micro_usd, desk["b"].cloud_micro_usd) == (17_500_000, 2_500_000)


def test_a_machine_that_turns_out_dearer_is_counted_at_what_it_costs() -> None:
    desk = capped(cap(100))
    desk.submit(cloud("a"))
    desk.tell(InstanceReady("i-000001", 0.0, Money.of(12)))
    assert desk.why("i-000001", "dearer") == "costs $12.00/h, not $10.00/h as its offer says"
    desk.now = HOUR
    assert spent(desk) == 12
    assert desk.phase("a") == "starting"


def test_what_is_cheaper_than_thought_is_no_news_and_counts_as_it_costs() -> None:
    desk = capped(cap(100))
    desk.submit(cloud("a"))
    desk.tell(InstanceReady("i-000001", 0.0, Money.of(5)))
    assert not desk.log("i-000001", "dearer")
    desk.now = HOUR
    assert spent(desk) == 5


# --- the rules by themselves ----------------------------------------------------------------------------


@given(st.sampled_from(PERIODS), st.floats(0, 4e9))
def test_windows_follow_each_other_without_a_gap(per: str, at: float) -> None:
    start, end = window(per, at)
    assert start <= at < end
    assert window(per, end)[0] == end
    assert window(per, start) == (start, end)


@pytest.mark.parametrize(
    ("per", "start", "end"),
    [
        ("hour", "2028-02-29T12", "2028-02-29T13"),
        ("day", "2028-02-29T00", "2028-03-01T00"),
        ("month", "2028-02-01T00", "2028-03-01T00"),
    ],
)
def test_windows_are_those_of_the_calendar(per: str, start: str, end: str) -> None:
    def at(text: str) -> float:
        return datetime.fromisoformat(f"{text}:00").replace(tzinfo=timezone.utc).timestamp()

    assert window(per, at("2028-02-29T12") + 61) == (at(start), at(end))


def test_the_last_month_of_a_year_ends_with_it() -> None:
    new_year = datetime(2027, 1, 1, tzinfo=timezone.utc).timestamp()
    assert window("month", new_year - 1)[1] == new_year


uses = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.integers(0, 20), st.integers(0, 9)).map(
        lambda it: Use(it[0], it[1], float(it[2]), float(it[2] + it[3]))
    ),
    min_size=1,
    max_size=6,
)


@given(uses, st.lists(st.integers(0, 30), min_size=2, max_size=5).map(sorted))
def test_the_seconds_of_a_machine_add_up_over_jobs_and_over_windows(held: list[Use], cuts: list[int]) -> None:
    whole = divide(held, cuts[0], cuts[-1])
    assert sum(whole.values()) == pytest.approx(cuts[-1] - cuts[0])
    for name in "abc":
        parts = sum(divide(held, a, b).get(name, 0.0) for a, b in pairwise(cuts))
        assert parts == pytest.approx(whole.get(name, 0.0))
