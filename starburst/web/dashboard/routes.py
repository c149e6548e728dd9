"""The routes of the dashboard: pages, and the parts of pages that browsers refresh."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from starburst.store.errors import AmbiguousJobError, JobNotFoundError
from starburst.store.listings import queries
from starburst.web.context import AppContext
from starburst.web.dashboard import render
from starburst.web.dashboard.baseline import BaselineCache
from starburst.web.dashboard.gantt import draw
from starburst.web.dashboard.overview import PHASES, JobFilter, overview
from starburst.web.packing_gap_cache import PackingGapCache
from starburst.web.sessions import cookies

#: Only our own files; no inline scripts or styles.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
TYPES = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
#: Newest decisions shown per job.
STORY = 300
#: Longest search text; a longer one is cut off.
TEXT = 120


def dashboard(app_context: AppContext) -> APIRouter:
    """The router of the dashboard of one home."""
    router = APIRouter(include_in_schema=False)
    baseline, gap = BaselineCache(app_context.store), PackingGapCache(app_context.store)

    @router.get("/")
    def home(request: Request, q: str = "", phase: str = "") -> Response:
        view = overview(app_context, baseline, gap, _asked(q, phase))
        return _page(request, render.overview_page(view, signed_in=_signed_in(request)))

    @router.get("/dashboard/overview")
    def overview_parts(request: Request, q: str = "", phase: str = "") -> Response:
        return _page(request, render.overview_parts(overview(app_context, baseline, gap, _asked(q, phase))))

    @router.get("/jobs/{job_id}")
    def job(request: Request, job_id: str) -> Response:
        page = partial(render.job_page, signed_in=_signed_in(request))
        return _of_job(request, app_context, job_id, page)

    @router.get("/dashboard/jobs/{job_id}")
    def job_parts(request: Request, job_id: str) -> Response:
        return _of_job(request, app_context, job_id, render.job_parts)

    @router.get("/dashboard/static/{name}")
    def static(request: Request, name: str, v: str = Query("", max_length=64)) -> Response:
        if name not in TYPES:
            return HTMLResponse(render.missing(f"there is no {name}"), 404, HEADERS)
        content = (files("starburst.web.dashboard") / "static" / name).read_bytes()
        kept = "public, max-age=31536000, immutable" if v else "no-cache"
        return Response(content, headers={"Cache-Control": kept}, media_type=TYPES[name])

    return router


def _signed_in(request: Request) -> bool:
    return bool(cookies(request))


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
        return HTMLResponse(render.missing(str(error)), 404, HEADERS)
    now = app_context.now()
    story = queries.decisions(app_context.store, row.id, last=STORY)
    told = app_context.snapshots.explanation(row, decided=story[-1].seq if story else 0)
    submission = app_context.store.submission(row.id)
    up = app_context.home.scheduler_pid() is not None
    page = draw_page(render.JobStory(now, up, row, told, story, draw(row, story, now), submission))
    return _page(request, page)


def _page(request: Request, html: str) -> Response:
    """The page with an ETag; status 304 if the browser has the same one."""
    tag = f'"{sha256(html.encode()).hexdigest()[:32]}"'
    headers = {**HEADERS, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(html, headers=headers)
