"""Errors as HTTP answers: JSON {"error": "…"} with one line per problem; for browsers a page."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from starburst.app.daemon.shortages import shortage_of
from starburst.app.errors import UserError
from starburst.store.errors import (
    CronJobNotFoundError,
    DamagedError,
    DiskFullError,
    JobNotFoundError,
    StoreError,
    UnusableError,
)
from starburst.store.quota import QuotaError
from starburst.web.dashboard.answers import missing, signed_in

log = structlog.get_logger()

#: `Retry-After` of an answer with status 503, seconds.
RETRY_S = 5


class HttpError(Exception):
    """A refusal with its status and headers."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


def add_handlers(app: FastAPI) -> None:
    """Register the handlers that turn exceptions into answers."""

    app.exception_handler(HttpError)(refused)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> Response:
        return told(request, 400, "\n".join(dict.fromkeys(map(_line, error.errors()))))

    @app.exception_handler(UserError)
    def bad(request: Request, error: UserError) -> Response:
        return told(request, 400, str(error))

    @app.exception_handler(StoreError)
    def not_stored(request: Request, error: StoreError) -> Response:
        status = {JobNotFoundError: 404, CronJobNotFoundError: 404, QuotaError: 403}.get(type(error), 400)
        return told(request, status, str(error))

    @app.exception_handler(UnusableError)
    @app.exception_handler(DamagedError)
    @app.exception_handler(OSError)
    @app.exception_handler(MemoryError)
    def held_up(request: Request, error: Exception) -> Response:
        return unavailable(request, error) or bug(request, error)

    @app.exception_handler(HTTPException)
    def of_routing(request: Request, error: HTTPException) -> Response:
        return told(request, error.status_code, error.detail, error.headers)

    @app.exception_handler(ClientDisconnect)
    def gone(_request: Request, _error: ClientDisconnect) -> Response:
        return answer(400, "the connection was closed within the body")  # the client is gone

    @app.exception_handler(Exception)
    def bug(request: Request, error: Exception) -> Response:
        id_ = secrets.token_hex(4)
        log.error("http-error", id=id_, method=request.method, path=request.url.path, exc_info=error)
        return told(request, 500, f"Starburst failed to answer; its log says why, under the id {id_}")


def refused(request: Request, refusal: HttpError) -> Response:
    """The answer to a refusal: a browser that has not logged in is led to the login."""
    if refusal.status == 401 and (
        is_for_page(request) or (request.method == "GET" and _takes_pages(request))
    ):
        return RedirectResponse("/login", 303)
    return told(request, refusal.status, str(refusal), refusal.headers)


def unavailable(request: Request, error: Exception) -> Response | None:
    """The answer to an error of the machine or the store; None if the error is the request's.

    The answer names no path and no program, because the sender may not be authenticated yet.
    """
    where = "starburst doctor, on the machine that runs it, says where"
    if isinstance(error, DamagedError):
        log.error("store-damaged", error=str(error))
        return told(request, 503, f"the store is damaged; {where}")
    held = shortage_of(error)
    if held is None:
        return None
    full = held.kind == DiskFullError.kind
    again = None if full else {"Retry-After": str(RETRY_S)}
    return told(request, 507 if full else 503, f"{held.kind}; {where}", again)


def told(request: Request, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error answer: a page where a browser asks for one, or sends its form."""
    if not is_for_page(request):
        return answer(status, text, headers)
    page = missing(text, status, signed_in=signed_in(request))
    page.headers.update(headers or {})
    return page


def is_for_page(request: Request) -> bool:
    """Whether the answer is for people: a browser asks for a page, or sends its form."""
    return _takes_pages(request) and not request.url.path.startswith("/api/")


def answer(status: int, text: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error answer."""
    return JSONResponse({"error": text}, status, headers)


def _takes_pages(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _line(problem: Mapping[str, object]) -> str:
    place = problem["loc"]
    assert isinstance(place, tuple)
    message = str(problem["msg"])
    return f"{place[-1]}: {message[:1].lower()}{message[1:]}"
