"""Caps on the dashboard: how they stand, whose are shown, what happens then; and which limit is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from starburst.app.config import Config, parse_config
from starburst.app.jobs.caps_view import cap_keys, cap_rows, stored_standings
from starburst.app.wiring.stored import live_core
from starburst.core.model.budget_values import CapLedger, CapStatus
from starburst.core.steps.budget import cap_statuses
from starburst.domain.money import Money
from starburst.policy.caps import Cap
from starburst.web import aggregates
from starburst.web.aggregates import SpendingLimit
from starburst.web.dashboard.caps import SHOWN, CapRow, caps_panel
from tests.web.lively import CAPS, CONFIG, NOON, Lively
from tests.web.place import CONTRAST, Place, place

HOUR = 3600.0


def configured(*caps: dict[str, Any], **cloud: Any) -> Config:
    return parse_config({**CONFIG, "caps": [*caps], **cloud}, "test")


def standing(
    spent: float, reserved: float = 0.0, rate: float = 0.0, limit: float = 10.0, **cap: Any
) -> CapStatus:
    """A day's cap of $10 whose window ends an hour after noon; dollars."""
    kept = Cap(Money.of(limit), cap.pop("per", "day"), **cap)
    return CapStatus(kept, CapLedger(0.0), NOON + HOUR, spent * 1e6, reserved * 1e6, rate * 1e6)


def line(spent: float, reserved: float = 0.0, rate: float = 0.0, **cap: Any) -> CapRow:
    return caps_panel([standing(spent, reserved, rate, **cap)], NOON).shown[0]


def test_an_hourly_cap_on_everybody_is_the_limit_whatever_can_be_rented() -> None:
    assert aggregates.limit(configured({"usd": 40, "per": "hour"})) == SpendingLimit(
        Money.of(40), is_cap=True
    )
    assert aggregates.limit(configured({"usd": 900, "per": "hour"})) == SpendingLimit(
        Money.of(900), is_cap=True
    )


def test_without_one_the_limit_is_all_that_can_be_rented() -> None:
    able = SpendingLimit(Money.of("184.50"), is_cap=False)
    others = {"usd": 40, "per": "day"}, {"usd": 1, "per": "hour", "user": "ada"}
    assert aggregates.limit(configured()) == aggregates.limit(configured(*others)) == able
    endless = {"offers": [{"name": "m", "gpus": 1, "cpus": 8, "memory_gib": 64, "usd_per_hour": 1}]}
    assert aggregates.limit(configured(cloud=endless)) is None


def test_a_cap_is_open_then_near_then_full_then_spent() -> None:
    stages = [(1.0, 0.0), (1.0, 6.9), (1.0, 7.0), (8.0, 0.0), (8.0, 2.0), (9.0, 5.0), (10.0, 0.0)]
    found = [
        line(spent, reserved, user="ada" if spent + reserved >= 8 else None) for spent, reserved in stages
    ]
    assert [it.state for it in found] == ["open", "open", "near", "near", "full", "full", "spent"]
    assert [round(it.booked, 2) for it in found] == [0.1, 0.79, 0.8, 0.8, 1.0, 1.0, 1.0]


def test_a_cap_of_nothing_is_spent() -> None:
    it = line(0.0, limit=0.0)
    assert (it.state, it.share) == ("spent", 1.0)


def test_how_long_the_money_lasts_is_told_if_the_window_does_not_end_before() -> None:
    assert line(7.0, rate=6.0).lasts_s == HOUR / 2
    assert line(7.0, rate=2.0).lasts_s is None
    assert line(7.0).lasts_s is None
    assert line(10.0, rate=6.0).lasts_s is None


def test_all_caps_on_everybody_are_shown_and_of_others_the_worst() -> None:
    near = [standing(8 + n / 100, user=f"u{n:02d}") for n in range(20)]
    caps = caps_panel(
        [
            standing(1, queue="far"),
            *near,
            standing(12, user="spent", queue="q"),
            standing(1),
            standing(1, per="hour"),
        ],
        NOON,
    )
    shown = [(it.whose, it.cap.per) for it in caps.shown]
    assert shown[:4] == [
        ("all jobs", "day"),
        ("all jobs", "hour"),
        ("user spent in queue q", "day"),
        ("user u19", "day"),
    ]
    assert (len(shown), caps.near, caps.far) == (SHOWN, 23 - SHOWN, 1)
    assert caps.day is caps.shown[0]


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lively]:
    with Lively.begin(tmp_path_factory.mktemp("capped")) as it:
        it.morning(40)
        it.cap(*CAPS)
        yield it


def test_they_stand_as_in_the_whole_scheduler_though_few_jobs_are_read(capped: Lively) -> None:
    store = capped.app_context.store
    core = live_core(store)
    found = cap_rows(store, capped.config.settings(), core.state.now)
    assert len(found) == len(CAPS)
    assert sum(row["usd_per_hour"] > 0 for row in found) > 1  # type: ignore[operator]
    assert sum(row["reserved_usd"] > 0 for row in found) > 1  # type: ignore[operator]
    for row, expected in zip(found, map(cap_keys, cap_statuses(core.state).values()), strict=True):
        assert row.keys() == expected.keys()
        for key, value in expected.items():
            # The clock all but stands still.
            assert row[key] == (pytest.approx(value, abs=0.001) if isinstance(value, float) else value)


def test_without_caps_nothing_is_read(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        assert stored_standings(lively.app_context.store, lively.config.settings(), NOON) == []


@pytest.fixture(scope="module")
def noon(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("noon"), chromium) as it:
        it.lively.cap(*CAPS)
        yield it


@pytest.mark.browser
def test_the_money_is_told_against_the_caps_on_everybody(noon: Place) -> None:
    with noon.page() as page:
        now, today = page.locator(".figure").nth(0), page.locator(".figure").nth(1)
        expect(now).to_contain_text("of $40.00/h, the hourly cap")
        expect(now).to_contain_text(re.compile(r"at most \d+ % above the least possible cost"))
        expect(today).to_contain_text("of $120.00, the daily cap")


@pytest.mark.browser
def test_who_is_near_a_cap_is_told_and_what_happens_then(noon: Place) -> None:
    with noon.page() as page:
        caps = page.locator('[data-part="caps"] .cap')
        names = ["cap/hour", "cap/day", "cap/day/user=dora", "cap/day/queue=research"]
        expect(caps).to_have_count(len(names))
        assert [cap.get_attribute("data-key") for cap in caps.all()] == names
        expect(caps.nth(1)).to_contain_text(
            "At the present rate it is spent in 13 min; then running jobs are stopped"
        )
        expect(caps.nth(2)).to_contain_text("The cap is spent: running jobs with checkpoints return")
        expect(caps.nth(3)).to_contain_text("The rest is reserved for running jobs")
        expect(caps.nth(3)).to_contain_text("then running jobs may end, and nothing more is rented")
        expect(page.locator("#h-caps .count")).to_have_text("1 more of queues and users, far from the limit")


@pytest.mark.browser
def test_on_a_narrow_phone_caps_do_not_stick_out(noon: Place) -> None:
    for width in (320, 360):
        with noon.page(viewport={"width": width, "height": 700}, is_mobile=True, has_touch=True) as page:
            expect(page.locator(".cap")).to_have_count(4)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_caps_can_be_read_by_day_and_by_night(noon: Place, scheme: Any) -> None:
    with noon.page(color_scheme=scheme) as page:
        ratio, where = page.evaluate(CONTRAST)
        assert ratio >= 4.5, where


@pytest.mark.browser
def test_caps_that_come_with_a_new_start_appear_without_a_reload(tmp_path: Path, chromium: Browser) -> None:
    with place(tmp_path, chromium, 30) as it, it.page() as page:
        expect(page.locator(".figure").nth(0)).to_contain_text("that can be rented")
        expect(page.locator(".cap")).to_have_count(0)
        it.lively.cap({"usd": 2, "per": "month"})
        expect(page.locator(".cap")).to_have_count(1)
