"""The routes of the dashboard: pages, and the parts of pages that browsers refresh."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, Request, Response

from starburst.store.errors import AmbiguousJobError, JobNotFoundError
from starburst.store.listings import queries
from starburst.web.context import AppContext
from starburst.web.dashboard import render
from starburst.web.dashboard.answers import missing, page, signed_in
from starburst.web.dashboard.budgets import BudgetReplayCache
from starburst.web.dashboard.gantt import draw
from starburst.web.dashboard.groups import groups
from starburst.web.dashboard.lists import lists
from starburst.web.dashboard.overview import PHASES, Computed, JobFilter, overview, owed_by_job
from starburst.web.dashboard.places import places

#: Newest decisions shown per job.
STORY = 300
#: Longest search text; a longer one is cut off.
TEXT = 120
#: Seconds that a page waits for what is computed beside it, so that small pasts are there at once.
FIRST_S = 0.5


def dashboard(app_context: AppContext) -> APIRouter:
    """The router of the dashboard of one home."""
    router = APIRouter(include_in_schema=False)
    computed, budgets = Computed.of(app_context.store), BudgetReplayCache(app_context.store)

    @router.get("/")
    def home(request: Request, q: str = "", phase: str = "") -> Response:
        view = overview(app_context, computed, _asked(q, phase))
        return page(request, render.overview_page(view, signed_in=signed_in(request)))

    @router.get("/dashboard/overview")
    def overview_parts(request: Request, q: str = "", phase: str = "") -> Response:
        return page(request, render.overview_parts(overview(app_context, computed, _asked(q, phase))))

    @router.get("/jobs/{job_id}")
    def job(request: Request, job_id: str) -> Response:
        draw_story = partial(render.job_page, signed_in=signed_in(request))
        return _of_job(request, app_context, job_id, draw_story)

    @router.get("/dashboard/jobs/{job_id}")
    def job_parts(request: Request, job_id: str) -> Response:
        return _of_job(request, app_context, job_id, render.job_parts)

    def drawn_budgets(template: str, request: Request, wait_s: float) -> Response:
        now = app_context.now()
        found = budgets.ask(now, wait_s)
        return page(request, render.draw_page(template, now, signed_in=signed_in(request), replay=found))

    @router.get("/what-if")
    def what_if(request: Request) -> Response:
        return drawn_budgets("budget.html", request, FIRST_S)

    @router.get("/dashboard/budget")
    def what_if_parts(request: Request) -> Response:
        return drawn_budgets("budget_parts.html", request, 0.0)

    router.include_router(lists(app_context))
    router.include_router(groups(app_context))
    router.include_router(places(app_context))
    return router


def _asked(text: str, phase: str) -> JobFilter:
    return JobFilter(text[:TEXT].strip(), phase if phase in PHASES else "")


def _of_job(
    request: Request,
    app_context: AppContext,
    job_id: str,
    draw_page: Callable[[render.JobStory], str],
) -> Response:
    try:
        row = queries.job(app_context.store, job_id)
    except (JobNotFoundError, AmbiguousJobError) as error:
        return missing(str(error))
    now = app_context.now()
    story = queries.decisions(app_context.store, row.id, last=STORY)
    told = app_context.snapshots.explanation(row, decided=story[-1].seq if story else 0)
    submission = app_context.store.submission(row.id)
    up = app_context.scheduler() is not None
    owed = owed_by_job(queries.instance_records(app_context.store), now)[row.id] if row.open_bills else 0
    chart, speed = draw(row, story, now), queries.pace(app_context.store).speed
    html = draw_page(render.JobStory(now, up, row, told, story, chart, submission, owed, speed))
    return page(request, html)
