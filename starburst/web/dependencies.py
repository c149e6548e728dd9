"""What a route is given: who asks, and what to answer from. `viewer` and its like are dependencies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Event, Lock
from typing import Annotated

from fastapi import Depends, Request

from starburst.app.config.http import HttpConfig
from starburst.app.jobs.serializers import Keys
from starburst.app.jobs.visibility import as_seen
from starburst.app.wiring.stored import live_core
from starburst.core.scheduler import Scheduler
from starburst.store import pages
from starburst.store.queries import JobRow
from starburst.store.store import Store
from starburst.store.tokens import Role
from starburst.web.auth import Authenticator, Principal
from starburst.web.context import AppContext
from starburst.web.decision_feed import DecisionFeed
from starburst.web.errors import HttpError


class LiveCore:
    """The scheduler's state as last committed, read once for many questions. One asks at a time."""

    def __init__(self, app_context: AppContext) -> None:
        self.lock = Lock()
        self._app_context = app_context
        self._core: Scheduler | None = None
        self._version: object = None

    def get(self) -> Scheduler:
        """The core at the present time; to be asked for, and used, with the lock held."""
        store = self._app_context.store
        # Each step of the scheduler writes its facts, each start its config.
        version = (store.fact("facts"), store.fact("config"))
        if self._core is None or version != self._version:
            self._core, self._version = live_core(store), version
        self._core.now = max(self._core.now, self._app_context.now())
        return self._core


@dataclass(frozen=True, slots=True)
class Services:
    """All that routes share."""

    app_context: AppContext
    settings: HttpConfig
    authenticator: Authenticator
    live: LiveCore
    feed: DecisionFeed
    #: Set when the server is about to end: streams end, too.
    closing: Event


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A request that was let in."""

    services: Services
    principal: Principal

    @property
    def store(self) -> Store:
        """Where answers come from."""
        return self.services.app_context.store

    def shown(self, rows: list[Keys]) -> list[Keys]:
        """Rows as the caller may see them."""
        return as_seen(self.store, self.principal.queues, rows)

    def job(self, text: str) -> JobRow:
        """The job that a caller means, if it is one of theirs.

        Raises:
            StoreError: there is none, or several.
        """
        return pages.find(self.store, text, self.principal.queues)

    def named(self, names: Iterable[str]) -> list[JobRow]:
        """The jobs that a caller means, where the name of an array is all of its jobs.

        Raises:
            StoreError: for a name there is none, or there are several.
        """
        return pages.named(self.store, names, self.principal.queues)


def viewer(request: Request) -> RequestContext:
    """Lets in whoever may look."""
    return _authenticate(request, Role.VIEWER)


def submitter(request: Request) -> RequestContext:
    """Lets in whoever may submit and cancel."""
    return _authenticate(request, Role.SUBMITTER)


def unscoped_viewer(request: Request) -> RequestContext:
    """Lets in who may look at every queue: for what knows no scope."""
    return _of_all_queues(_authenticate(request, Role.VIEWER))


def unscoped_page_viewer(request: Request) -> RequestContext:
    """The same, for pages: a browser's session will do."""
    return _of_all_queues(_authenticate(request, Role.VIEWER, to_page=True))


def _of_all_queues(context: RequestContext) -> RequestContext:
    if context.principal.queues is not None:
        raise HttpError(
            403, f"the token {context.principal.name!r} is for some queues only; this shows them all"
        )
    return context


def _authenticate(request: Request, role: Role, *, to_page: bool = False) -> RequestContext:
    services: Services = request.app.state.services
    principal = services.authenticator.admit(request, to_page=to_page)
    if not principal.may(role):
        mine = principal.role.value
        raise HttpError(403, f"the token {principal.name!r} is a {mine}'s; this needs a {role.value}'s")
    return RequestContext(services, principal)


Viewer = Annotated[RequestContext, Depends(viewer)]
Submitter = Annotated[RequestContext, Depends(submitter)]
