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
    503: "the store is busy or out of reach; `Retry-After` says when to come again",
    507: "there is no room left on the disk",
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
    app.state.desk = Desk(office, settings, gate, LiveCore(office), Event())
    add_handlers(app)
    api = APIRouter(prefix="/api/v1", responses=_refusals())
    for routes in (streams.router, progress.router, jobs.router, fleet.router):
        api.include_router(routes)
    app.include_router(api)
    app.include_router(login.router)
    app.include_router(health(office))
    for pages in (dashboard(office), metrics(office)):
        app.include_router(pages, dependencies=[Depends(overseer)])
    return app


def health(office: Office) -> APIRouter:
    """The route for whoever keeps it running; it needs no token, so it names no places."""
    router = APIRouter()

    @router.get(HEALTH, summary="Whether the scheduler goes on", tags=["health"], responses=_refusals(503))
    def healthz() -> JSONResponse:
        """503 while it waits for what its machine lacks, and what that is."""
        said = office.home.scheduler()
        if said is None or not said.kind:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "waits", "error": f"the scheduler waits: {said.kind}"}, 503)

    return router


def _refusals(*some: int) -> dict[int | str, dict[str, object]]:
    """As the description of the API has them; all, if none are named."""
    content = {"application/json": {"schema": _ERROR}}
    return {
        status: {"description": why, "content": content}
        for status, why in REFUSALS.items()
        if not some or status in some
    }
