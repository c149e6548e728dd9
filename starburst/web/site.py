"""Puts the HTTP API together."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse

from starburst import __version__
from starburst.app.config_http import HttpConfig
from starburst.web import fleet, jobs, login, progress, streams
from starburst.web.dashboard import dashboard
from starburst.web.errors import add_handlers
from starburst.web.gate import Gate
from starburst.web.metrics import metrics
from starburst.web.office import Office
from starburst.web.turns import Turns
from starburst.web.visit import Desk, LiveCore, overseer

ABOUT = """What the `starburst` command does, over HTTP. Answers have the keys of its `-o json`.

Send a token as `Authorization: Bearer …`; a Starburst that has none answers its own machine only, without.
Every refusal is `{"error": "…"}`, with one line for each problem.
"""
HEALTH = "/healthz"
#: Any route may refuse with these.
REFUSALS = {
    400: "something in the request is wrong",
    401: "a token is needed",
    403: "the token is not enough",
    404: "there is no such thing, or it is in another's queue",
    413: "the body is too large",
    429: "too many requests or streams; `Retry-After` says when to come again",
}
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def make_app(
    office: Office,
    settings: HttpConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> FastAPI:
    """The API on a home. Limits are counted by `clock`, tokens expire by `wall`; both in seconds."""
    app = FastAPI(
        title="Starburst",
        version=__version__,
        description=ABOUT,
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    gate = Gate(office, settings, clock=clock, wall=wall)
    app.state.turns = Turns()
    app.state.desk = Desk(office, settings, gate, LiveCore(office), Event())
    add_handlers(app)
    api = APIRouter(prefix="/api/v1", responses=_refusals())
    for routes in (streams.router, progress.router, jobs.router, fleet.router):
        api.include_router(routes)
    app.include_router(api)
    app.include_router(login.router)
    app.add_api_route(HEALTH, healthz, summary="Whether it answers", tags=["health"])
    for pages in (dashboard(office), metrics(office)):
        app.include_router(pages, dependencies=[Depends(overseer)])
    return app


def healthz() -> JSONResponse:
    """For whoever keeps it running; needs no token."""
    return JSONResponse({"status": "ok"})


def _refusals() -> dict[int | str, dict[str, object]]:
    content = {"application/json": {"schema": _ERROR}}
    return {status: {"description": why, "content": content} for status, why in REFUSALS.items()}
