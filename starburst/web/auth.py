"""Authentication: a bearer token or a session identifies a principal with a role and a scope of queues.

While no token exists and the server is bound to loopback, each request from this machine is an admin's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fastapi import Request

from starburst.app.config.http import HttpConfig
from starburst.domain.job import ANYBODY, OWNER, Submitter
from starburst.hosts import is_loopback
from starburst.store import tokens
from starburst.store.report_tokens import REPORT_PREFIX, is_report_token, report_key
from starburst.store.tokens import Role, Token
from starburst.web.context import AppContext
from starburst.web.errors import HttpError
from starburst.web.limits import RateLimits
from starburst.web.serving.peers import source_of
from starburst.web.sessions import Sessions, cookies

#: Wall seconds between two updates of a token's last use.
NOTE_S = 60.0
#: Methods without side effects.
SAFE = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated sender of a request, with its rights."""

    #: Key of the rate limits.
    key: str
    role: Role
    #: Scope: the principal sees and changes jobs of these queues only; None is all queues.
    queues: tuple[str, ...] | None = None
    #: Name of the token; "" without a token.
    name: str = ""
    secret: str = field(default="", repr=False)
    #: Rights of its jobs in a Kubernetes cluster.
    submitter: Submitter = ANYBODY

    def may(self, role: Role) -> bool:
        """Whether its role covers `role`."""
        return self.role.covers(role)

    def sees(self, queue: str) -> bool:
        """Whether its scope includes a queue."""
        return self.queues is None or queue in self.queues


class Authenticator:
    """Identifies the principal of each request, or refuses the request. Thread-safe."""

    def __init__(
        self,
        app_context: AppContext,
        settings: HttpConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.limits = RateLimits(settings.requests_per_second, settings.streams, clock)
        self.sessions = Sessions(wall)
        self._store = app_context.store
        self._local = settings.is_local
        self._wall = wall
        self._noted: dict[str, float] = {}

    def authenticate(self, request: Request, *, to_page: bool = False, form: bool = False) -> Principal:
        """The principal of a request. A request for a page (`to_page`) may also have a browser session.

        `form`: also one that changes something, of which the caller checks the form's token.

        Raises:
            HttpError: 400, the address is malformed; 401, the token is missing or unknown; 403, a page of
                another site sent the request; 429, the rate limit is exceeded.
        """
        if "\0" in request.url.path or b"%00" in request.scope["query_string"]:
            raise HttpError(400, "the address has a NUL in it; leave it out")
        if request.method not in SAFE:
            refuse_other_pages(request)
        address = request.client.host if request.client else "?"
        bearer = bearer_of(request)
        token = self.token(bearer)
        if token is None and to_page and not bearer and (form or request.method in SAFE):
            token = self._of_session(request)
        if token is not None:
            self.limits.charge(f"token {token.name}")
            self._note_use(token)
            key = f"token {token.name}"
            return Principal(key, token.role, token.queues, token.name, bearer, token.submitter)
        self.limits.charge(limit_key(request))
        if bearer or not self.is_open():
            said = "this token is not known, or has expired" if bearer else "a token is needed"
            mend = "have one made with: starburst token create"
            raise HttpError(401, f"{said}; {mend}", {"WWW-Authenticate": "Bearer"})
        _refuse_other_hosts(request)
        return Principal(address, Role.ADMIN, submitter=OWNER)

    def authenticate_report(self, request: Request, job: str) -> Principal | None:
        """The principal of a progress report on a job; None is the job itself, by its report token.

        Raises:
            HttpError: as for `admit`.
        """
        bearer = bearer_of(request)
        if not bearer.startswith(REPORT_PREFIX):
            return self.authenticate(request)
        refuse_other_pages(request)
        key = report_key(self._store)
        if key is None or not is_report_token(key, job, bearer):
            return self.authenticate(request)  # refuses the unknown token
        self.limits.charge(f"job {job}")
        return None

    def token(self, secret: str) -> Token | None:
        """The valid token with this secret; None if it is unknown or expired."""
        return self._holding(tokens.hashed(secret)) if secret else None

    def is_open(self) -> bool:
        """Whether requests need no token: the server is bound to loopback, and no token exists."""
        return self._local and not tokens.any_exist(self._store)

    def still_admits(self, principal: Principal) -> bool:
        """Whether the principal of a long request is still valid: token neither revoked nor expired.

        The principal of a session, whose token is not known, is not: its browser asks anew.
        """
        return self.is_open() if not principal.name else self.token(principal.secret) is not None

    def _of_session(self, request: Request) -> Token | None:
        """The valid token of the request's browser session, if it has one."""
        hashes = filter(None, map(self.sessions.token_hash, cookies(request)))
        return next(filter(None, map(self._holding, hashes)), None)

    def _holding(self, hash_: str) -> Token | None:
        token = tokens.find_hashed(self._store, hash_)
        return token if token is not None and token.holds(self._wall()) else None

    def _note_use(self, token: Token) -> None:
        now = self._wall()
        if abs(now - self._noted.get(token.name, 0.0)) >= NOTE_S:
            self._noted[token.name] = now
            tokens.used(self._store, token.name, now)


def refuse_other_pages(request: Request) -> None:
    """Refuse a request that a browser sends on behalf of a page of another site.

    Raises:
        HttpError: 403, `Origin` or `Sec-Fetch-Site` name another site. Programs send neither header.
    """
    origin = request.headers.get("origin")
    ours = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not ours or request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise HttpError(403, "a page of another site asked for this; open Starburst's own")


def limit_key(request: Request) -> str:
    """The key that a request without a token is limited by: its user on this machine, otherwise its address.

    All users of the machine share the loopback address, and none may use up the requests of another one.
    """
    host, port = request.client or ("?", 0)
    uid = getattr(request.state, "uid", None) if is_loopback(host) else None  # not the user of a proxy
    try:
        return source_of((host, port), uid)
    except ValueError:  # as a proxy wrote it
        return host


def _refuse_other_hosts(request: Request) -> None:
    """Refuse host names that are not loopback: by DNS rebinding a foreign page could reach this server."""
    named = request.headers.get("host", "")
    try:
        host = urlsplit(f"//{named}").hostname or ""
    except ValueError:
        host = ""
    if not is_loopback(host):
        raise HttpError(403, f"the host {named!r} is not this machine; ask for localhost, or make a token")


def bearer_of(request: Request) -> str:
    """The token of a request; "" without one."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
