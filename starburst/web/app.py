"""The FastAPI application: routes, error handlers, health check."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from starburst import __version__
from starburst.app.config.http import HttpConfig
from starburst.web.auth import Authenticator
from starburst.web.context import AppContext
from starburst.web.dashboard import actions, dashboard, own_notices, static_files
from starburst.web.dashboard.answers import missing
from starburst.web.decision_feed import DecisionFeed
from starburst.web.dependencies import Services, unscoped_page_viewer, unscoped_viewer, viewer
from starburst.web.errors import add_handlers, answer, is_for_page
from starburst.web.form_tokens import FormTokens
from starburst.web.middleware import HEALTH, LEADING
from starburst.web.routes import cronjobs, fleet, jobs, login, progress, streams
from starburst.web.routes.metrics import metrics
from starburst.web.submission_limits import SubmissionLimits

ABOUT = """What the `starburst` command does, over HTTP. Answers have the keys of its `-o json`.

Send a token as `Authorization: Bearer …`; a Starburst that has none answers its own machine only, without.
Every refusal is `{"error": "…"}`, with one line for each problem.
"""
#: Statuses that any route may refuse a request with.
REFUSALS = {
    400: "something in the request is wrong",
    401: "a token is needed",
    403: "the token is not enough",
    404: "there is no such thing, or it is in another's queue",
    413: "the body is too large",
    429: "too many requests or streams; `Retry-After` says when to come again",
    503: "the store is busy or out of reach; `Retry-After` says when to come again",
    507: "there is no room left on the disk",
}
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def make_app(
    app_context: AppContext,
    settings: HttpConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> FastAPI:
    """The HTTP application of a home. `clock` (monotonic s) drives rate limits, `wall` (s) token expiry."""
    app = FastAPI(
        title="Starburst",
        version=__version__,
        description=ABOUT,
        openapi_url=None,  # replaced by a route that requires a token
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
    )
    serve(app, app_context, settings, clock=clock, wall=wall)
    add_handlers(app)
    app.add_exception_handler(404, unknown_address)
    api = APIRouter(prefix="/api/v1", responses=_refusals())
    for routes in (streams.router, progress.router, jobs.router, cronjobs.router, fleet.router):
        api.include_router(routes)
    app.include_router(api)
    app.include_router(login.router)
    app.include_router(health(app_context))
    app.add_api_route("/openapi.json", described, include_in_schema=False, dependencies=[Depends(viewer)])
    app.include_router(static_files.router)
    app.include_router(actions.router)
    app.include_router(own_notices.router)
    app.include_router(dashboard(app_context), dependencies=[Depends(unscoped_page_viewer)])
    app.include_router(metrics(app_context), dependencies=[Depends(unscoped_viewer)])
    return app


def serve(
    app: FastAPI,
    app_context: AppContext,
    settings: HttpConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> None:
    """Have the routes below /api/v1 serve a home, from now on; the others keep that of `make_app`."""
    authenticator = Authenticator(app_context, settings, clock=clock, wall=wall)
    closing = Event()
    feed = DecisionFeed(app_context.store, closing.is_set)
    app.state.submission_limits = SubmissionLimits()
    form_tokens = FormTokens(authenticator.sessions)
    app.state.services = Services(app_context, settings, authenticator, feed, form_tokens, closing)


def unknown_address(request: Request, error: Exception) -> Response:
    """The answer where there is no route: a page for browsers, JSON for programs."""
    detail = error.detail if isinstance(error, HTTPException) else str(error)
    if is_for_page(request):
        return missing(f"there is no page {request.url.path}")
    return answer(404, detail)


def described(request: Request) -> JSONResponse:
    """The OpenAPI description."""
    return JSONResponse(request.app.openapi())


def health(app_context: AppContext) -> APIRouter:
    """The health route for process managers. It requires no token, so it names no paths."""
    router = APIRouter()

    @router.get(HEALTH, summary="Whether the scheduler goes on", tags=["health"], responses=_refusals(503))
    def healthz() -> JSONResponse:
        """503 while the scheduler hangs or waits for a missing resource; the answer names the reason."""
        stalled_s = app_context.heartbeat.stalled_s() if app_context.heartbeat is not None else 0.0
        if stalled_s:
            why = f"the scheduler has made no step for {stalled_s:.0f} s; its log may say why"
            return JSONResponse({"status": "hangs", "error": why}, 503)
        if not app_context.leads():  # which is well, so nobody need restart it
            return JSONResponse({"status": "stands by"})
        said = app_context.scheduler()
        if said is None or not said.kind:
            return JSONResponse({"status": "stands by" if said is not None and said.leader else "ok"})
        return JSONResponse({"status": "waits", "error": f"the scheduler waits: {said.kind}"}, 503)

    @router.get(LEADING, summary="Whether this replica leads", tags=["health"], responses=_refusals(503))
    def leading() -> JSONResponse:
        """503 while another one leads, or none: for what is to reach the leader alone."""
        if app_context.leads():
            return JSONResponse({"status": "leads"})
        return JSONResponse({"status": "stands by", "error": "this replica does not lead"}, 503)

    return router


def _refusals(*some: int) -> dict[int | str, dict[str, object]]:
    """The refusals for the OpenAPI description: those of the given statuses, or all."""
    content = {"application/json": {"schema": _ERROR}}
    return {
        status: {"description": why, "content": content}
        for status, why in REFUSALS.items()
        if not some or status in some
    }
