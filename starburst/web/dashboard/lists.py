"""Pages with lists: jobs by user, queue, array or place, sorted and in pages; the decision log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy import select

from starburst.store import schema as t
from starburst.store.listings import pages, queries
from starburst.store.listings.dashboard_queries import MOST_HITS
from starburst.store.listings.job_list import SORTS, JobChoice, listed
from starburst.store.listings.row_types import DecisionRow, JobRow
from starburst.web.context import AppContext
from starburst.web.dashboard.answers import missing, page, signed_in
from starburst.web.dashboard.overview import PHASES, owed_by_job
from starburst.web.dashboard.render import draw_page

#: Rows of a page.
ROWS = 100
_Text = Annotated[str, Query(max_length=300)]
PageNumber = Annotated[int, Query(ge=1, le=MOST_HITS // ROWS)]


@dataclass(frozen=True, slots=True)
class JobList:
    """The contents of a page of jobs."""

    choice: JobChoice
    rows: list[JobRow]
    hits: int
    number: int
    #: Micro-dollars by job for machines that have not ended.
    owed: Mapping[str, int]

    @property
    def title(self) -> str:
        """What all these jobs have in common."""
        names = ("user", "queue", "array", "on")
        parts = [f"{name} {getattr(self.choice, name)}" for name in names if getattr(self.choice, name)]
        return ", ".join(parts) or "all"

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max(1, -(-self.hits // ROWS))

    def address(self, **changes: object) -> str:
        """The address of this list with another sort, phase or page."""
        asked = {**asdict(self.choice), "sort": self.choice.sort, **changes}
        if asked["sort"] == "submitted":
            del asked["sort"]
        return "?" + urlencode({name: value for name, value in asked.items() if value})


def chosen(
    *,
    q: _Text = "",
    phase: _Text = "",
    user: _Text = "",
    queue: _Text = "",
    array: _Text = "",
    on: _Text = "",
    sort: _Text = "submitted",
) -> JobChoice:
    """The choice that an address makes; an unknown phase or sort is none."""
    return JobChoice(
        q.strip(),
        phase if phase in PHASES else "",
        user,
        queue,
        array,
        on,
        sort if sort in SORTS else "submitted",
    )


def lists(app_context: AppContext) -> APIRouter:
    """The routes of the lists of one home."""
    router = APIRouter(include_in_schema=False)

    def jobs_of(choice: JobChoice, number: int) -> JobList:
        with app_context.store.read() as conn:
            rows, hits = listed(conn, choice, ROWS, (number - 1) * ROWS)
            owed = owed_by_job(queries.machines(conn), app_context.now())
        return JobList(choice, rows, hits, number, owed)

    @router.get("/jobs")
    def jobs(
        request: Request, choice: Annotated[JobChoice, Depends(chosen)], page_number: PageNumber = 1
    ) -> Response:
        found = jobs_of(choice, page_number)
        html = draw_page(
            "jobs.html",
            app_context.now(),
            signed_in=signed_in(request),
            list=found,
            phases=PHASES,
            sorts=SORTS,
        )
        return page(request, html)

    @router.get("/dashboard/jobs")
    def job_parts(
        request: Request, choice: Annotated[JobChoice, Depends(chosen)], page_number: PageNumber = 1
    ) -> Response:
        found = jobs_of(choice, page_number)
        html = draw_page("jobs_parts.html", app_context.now(), list=found, phases=PHASES, sorts=SORTS)
        return page(request, html)

    @router.get("/decisions")
    def decisions(
        request: Request, before: Annotated[int | None, Query(ge=1, lt=2**62)] = None, subject: _Text = ""
    ) -> Response:
        head = pages.head(app_context.store)
        end = head if before is None else min(before - 1, head)
        rows, is_last = _decisions(app_context, end, subject)
        if subject and not rows and before is None:
            return missing(f"there are no decisions about {subject}")
        html = draw_page(
            "decisions.html",
            app_context.now(),
            signed_in=signed_in(request),
            rows=rows,
            is_last=is_last,
            subject=subject,
            head=head,
        )
        return page(request, html)

    return router


def _decisions(app_context: AppContext, end: int, subject: str) -> tuple[list[DecisionRow], bool]:
    """The newest rows up to a number, newest first, and whether none is older; of one subject the last ROWS.

    Decisions of jobs that ended long ago are removed, so that numbers have gaps.
    """
    if subject:
        return queries.decisions(app_context.store, subject, last=ROWS)[::-1], True
    seq = t.decisions.c.seq
    newest = select(t.decisions).where(seq <= end).order_by(seq.desc()).limit(ROWS + 1)
    with app_context.store.read() as conn:
        found = conn.execute(newest).mappings().all()
    rows = [DecisionRow(**{**row, "numbers": json.loads(row["numbers"])}) for row in found[:ROWS]]
    return rows, len(found) <= ROWS
