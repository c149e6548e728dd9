"""Desks under caps, and where a cap stands."""

from __future__ import annotations

from typing import Any

from starburst.core.model.budget_values import CapStatus
from starburst.core.scheduler import Scheduler
from starburst.core.steps.budget import cap_statuses
from starburst.domain.job import Job
from starburst.domain.money import Money
from starburst.policy.caps import Cap
from tests.builders import HOUR, MINUTE, Desk, job, offer

DAY = 24 * HOUR
#: $10 an hour, and six minutes to come up.
MACHINE = offer("m", 4, 10, ready_s=6 * MINUTE)


def cap(dollars: float, per: str = "day", **more: Any) -> Cap:
    return Cap(Money.of(dollars), per, **more)


def capped(*caps: Cap, offers: Any = (MACHINE,), **settings: Any) -> Desk:
    """No cluster; every job asks for a machine of its own."""
    return Desk(offers=offers, caps=caps, **settings)


def cloud(name: str, *, hours: float | None = 1.0, **more: Any) -> Job:
    return job(name, 4, hours=hours, cloud="only", **more)


def stands(desk: Desk | Scheduler, name: str = "cap/day") -> CapStatus:
    scheduler = desk.scheduler if isinstance(desk, Desk) else desk
    if isinstance(desk, Desk):
        scheduler.state.pass_to(desk.now)
    return cap_statuses(scheduler.state)[name]


def spent(desk: Desk, name: str = "cap/day") -> float:
    """Dollars."""
    return round(stands(desk, name).spent / 1e6, 5)


def reserved(desk: Desk, name: str = "cap/day") -> float:
    """Dollars."""
    return round(stands(desk, name).reserved / 1e6, 5)
