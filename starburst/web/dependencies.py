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
from starburst.web.auth import Caller, Gate
from starburst.web.context import Office
from starburst.web.decision_feed import News
from starburst.web.errors import RefusedError


class LiveCore:
    """The scheduler's state as last committed, read once for many questions. One asks at a time."""

    def __init__(self, office: Office) -> None:
        self.lock = Lock()
        self._office = office
        self._core: Scheduler | None = None
        self._version: object = None

    def get(self) -> Scheduler:
        """The core at the present time; to be asked for, and used, with the lock held."""
        store = self._office.store
        # Each step of the scheduler writes its facts, each start its config.
        version = (store.fact("facts"), store.fact("config"))
        if self._core is None or version != self._version:
            self._core, self._version = live_core(store), version
        self._core.now = max(self._core.now, self._office.now())
        return self._core


@dataclass(frozen=True, slots=True)
class Desk:
    """All that routes share."""

    office: Office
    settings: HttpConfig
    gate: Gate
    live: LiveCore
    news: News
    #: Set when the server is about to end: streams end, too.
    closing: Event


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that was let in."""

    desk: Desk
    caller: Caller

    @property
    def store(self) -> Store:
        """Where answers come from."""
        return self.desk.office.store

    def shown(self, rows: list[Keys]) -> list[Keys]:
        """Rows as the caller may see them."""
        return as_seen(self.store, self.caller.queues, rows)

    def job(self, text: str) -> JobRow:
        """The job that a caller means, if it is one of theirs.

        Raises:
            StoreError: there is none, or several.
        """
        return pages.find(self.store, text, self.caller.queues)

    def named(self, names: Iterable[str]) -> list[JobRow]:
        """The jobs that a caller means, where the name of an array is all of its jobs.

        Raises:
            StoreError: for a name there is none, or there are several.
        """
        return pages.named(self.store, names, self.caller.queues)


def viewer(request: Request) -> Visit:
    """Lets in whoever may look."""
    return _admit(request, Role.VIEWER)


def submitter(request: Request) -> Visit:
    """Lets in whoever may submit and cancel."""
    return _admit(request, Role.SUBMITTER)


def overseer(request: Request) -> Visit:
    """Lets in who may look at every queue: for what knows no scope."""
    return _of_all_queues(_admit(request, Role.VIEWER))


def onlooker(request: Request) -> Visit:
    """The same, for pages: a browser's session will do."""
    return _of_all_queues(_admit(request, Role.VIEWER, to_page=True))


def _of_all_queues(visit: Visit) -> Visit:
    if visit.caller.queues is not None:
        raise RefusedError(
            403, f"the token {visit.caller.name!r} is for some queues only; this shows them all"
        )
    return visit


def _admit(request: Request, role: Role, *, to_page: bool = False) -> Visit:
    desk: Desk = request.app.state.desk
    caller = desk.gate.admit(request, to_page=to_page)
    if not caller.may(role):
        mine = caller.role.value
        raise RefusedError(403, f"the token {caller.name!r} is a {mine}'s; this needs a {role.value}'s")
    return Visit(desk, caller)


Viewer = Annotated[Visit, Depends(viewer)]
Submitter = Annotated[Visit, Depends(submitter)]
