"""Renders pages as HTML. Jinja's autoescape escapes every value that comes from a store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from starburst.app.times import iso, local_clock
from starburst.core.views.explain import Explanation
from starburst.domain.job import Submission
from starburst.domain.money import Money
from starburst.policy.waiting import hours
from starburst.store.listings.row_types import DecisionRow, JobRow
from starburst.web.dashboard.gantt import Gantt
from starburst.web.dashboard.overview import PHASES, Overview

_MACHINE = re.compile(r"i-[0-9]{6,}")


@dataclass(frozen=True, slots=True)
class JobStory:
    """The contents of a job's page."""

    now: float
    up: bool
    row: JobRow
    told: Explanation
    decisions: Sequence[DecisionRow]
    gantt: Gantt
    submission: Submission | None
    #: Micro-dollars that it owes for machines that have not ended.
    owed: int = 0
    #: How many times as fast as wall time the scheduler's clock runs.
    speed: float = 1.0

    @property
    def array(self) -> str:
        """The array that the job is of; "" is none."""
        member = None if self.submission is None else self.submission.job.array
        return "" if member is None else member.array


def overview_page(view: Overview, *, signed_in: bool = False) -> str:
    """The overview page; `signed_in`: the request has a session, so the page offers to log out."""
    return draw_page("overview.html", view.now, signed_in=signed_in, view=view, phases=PHASES)


def overview_parts(view: Overview) -> str:
    """The parts of the overview page that the browser refreshes."""
    return draw_page("overview_parts.html", view.now, view=view, phases=PHASES)


def job_page(story: JobStory, *, signed_in: bool = False) -> str:
    """The page of a job; `signed_in` as for `overview_page`."""
    return draw_page("job.html", story.now, signed_in=signed_in, story=story)


def job_parts(story: JobStory) -> str:
    """The parts of a job's page that the browser refreshes."""
    return draw_page("job_parts.html", story.now, story=story)


def missing(what: str, status: int, *, signed_in: bool = False) -> str:
    """The page for what is not there (status 404), was refused, or failed here (from 500 on).

    `signed_in` as for `overview_page`.
    """
    title = "Not found" if status == 404 else "Refused" if status < 500 else "No answer"
    return draw_page("missing.html", 0.0, signed_in=signed_in, title=title, what=what)


def draw_page(template: str, now: float, *, signed_in: bool = False, **values: object) -> str:
    """A template as HTML; `now` is the present, scheduler seconds."""
    clock, zone = local_clock(now), datetime.fromtimestamp(now).astimezone().tzname()
    page = _environment().get_template(template)
    return page.render(now=now, clock=clock, zone=zone, signed_in=signed_in, **values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("starburst.web.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.tests |= {"machine": _is_machine}
    made.filters |= {"span": _span, "iso": iso, "usd": _usd, "percent": _percent}
    made.globals |= {"asset": _asset, "waited": waited}
    return made


def waited(queued_at: float, deadline: float | None, now: float) -> float | None:
    """The elapsed share of a job's wait; None if the wait has no deadline."""
    if deadline is None:
        return None
    whole = deadline - queued_at
    return min(1.0, max(0.0, (now - queued_at) / whole)) if whole > 0 else 1.0


def _is_machine(place: str) -> bool:
    """Whether a name is a rented machine's; nodes of AWS and jobs may be named `i-…`, too."""
    return _MACHINE.fullmatch(place) is not None


def _usd(amount: Money | int) -> str:
    """Dollars for people; without cents from $10,000."""
    money = amount if isinstance(amount, Money) else Money(amount)
    return str(money) if abs(money.micro_usd) < 10_000_000_000 else f"${money.dollars:,.0f}"


def _span(seconds: float) -> str:
    """A duration that grows: in whole seconds, then whole minutes, then hours."""
    unit_s = 1 if seconds < 100 else 60 if seconds < 5400 else 1e-3
    return hours(unit_s * round(seconds / unit_s))


def _percent(share: float) -> str:
    return f"{100 * share:.3g}"


@cache
def _asset(name: str) -> str:
    """The URL of a static file, with a hash of its content so that browsers may cache it for ever."""
    content = (files("starburst.web.dashboard") / "static" / name).read_bytes()
    return f"/dashboard/static/{name}?v={sha256(content).hexdigest()[:12]}"
