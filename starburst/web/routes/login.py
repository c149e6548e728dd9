"""The login form: a browser exchanges a token for a session cookie, which is accepted for pages only.

Tokens are never read from URLs, because browser histories and proxy logs keep those.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from starburst.web.auth import limit_key, refuse_other_pages
from starburst.web.dashboard.answers import HEADERS
from starburst.web.dashboard.render import draw_page
from starburst.web.dependencies import Services
from starburst.web.routes.bodies import read_form
from starburst.web.sessions import cookie_name, cookies

router = APIRouter(include_in_schema=False)


@router.get("/login")
def form() -> Response:
    """The login form."""
    return _page("", 200)


@router.post("/login")
async def enter(request: Request) -> Response:
    """Begin a session and redirect to the dashboard."""
    services: Services = request.app.state.services
    refuse_other_pages(request)
    services.authenticator.limits.charge(limit_key(request))
    secret = (await read_form(request)).get("token", "").strip()
    if await run_in_threadpool(services.authenticator.token, secret) is None:
        return _page("This token is not known, or has expired.", 401)
    for old in cookies(request):
        services.authenticator.sessions.end(old)
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    id_ = services.authenticator.sessions.begin(secret)
    # Browsers keep what follows "#" to themselves: see form_tokens.py.
    answer = RedirectResponse(f"/#forms={services.form_tokens.of_session(id_)}", 303)
    answer.set_cookie(cookie_name(request), id_, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
def leave(request: Request) -> Response:
    """End a browser's session."""
    services: Services = request.app.state.services
    refuse_other_pages(request)
    for id_ in cookies(request):
        services.authenticator.sessions.end(id_)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(cookie_name(request), httponly=True, samesite="strict")
    return answer


def _page(said: str, status: int) -> Response:
    return HTMLResponse(draw_page("login.html", 0.0, said=said), status, HEADERS)
