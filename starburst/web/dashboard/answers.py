"""Pages as answers: their headers, and 304 for who has the same page."""

from __future__ import annotations

from hashlib import sha256

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from starburst.web.dashboard import render
from starburst.web.sessions import cookies

#: Only our own files; no inline scripts or styles.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def page(request: Request, html: str) -> Response:
    """The page with an ETag; status 304 if the browser has the same one."""
    tag = f'"{sha256(html.encode()).hexdigest()[:32]}"'
    headers = {**HEADERS, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(html, headers=headers)


def missing(what: str, status: int = 404, *, signed_in: bool = False) -> Response:
    """The page that says what is not there, or what was refused."""
    return HTMLResponse(render.missing(what, status, signed_in=signed_in), status, HEADERS)


def signed_in(request: Request) -> bool:
    """Whether the request has a session, so that the page offers to log out."""
    return bool(cookies(request))
