"""FastAPI dependencies of the routes: the authenticated request context, by required role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Event
from typing import Annotated

from fastapi import Depends, Request

from starburst.app.config.http import HttpConfig
from starburst.app.jobs.job_keys import Keys
from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.app.jobs.visibility import as_seen
from starburst.store.listings import pages
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store
from starburst.store.tokens import Role
from starburst.web.auth import Authenticator, Principal
from starburst.web.context import AppContext
from starburst.web.decision_feed import DecisionFeed
from starburst.web.errors import HttpError
from starburst.web.form_tokens import FormTokens


@dataclass(frozen=True, slots=True)
class Services:
    """Objects shared by all requests, as `app.state.services`."""

    app_context: AppContext
    settings: HttpConfig
    authenticator: Authenticator
    feed: DecisionFeed
    form_tokens: FormTokens
    #: Set when the server is about to stop, so that streams end.
    closing: Event


@dataclass(frozen=True, slots=True)
class RequestContext:
    """An authenticated request."""

    services: Services
    principal: Principal

    @property
    def store(self) -> Store:
        """The store of the home."""
        return self.services.app_context.store

    @property
    def snapshots(self) -> SnapshotCache:
        """Answers questions that need the whole core."""
        return self.services.app_context.snapshots

    def shown(self, rows: list[Keys]) -> list[Keys]:
        """Rows as the principal may see them: ids of jobs outside its scope are masked."""
        return as_seen(self.store, self.principal.queues, rows)

    def job(self, text: str) -> JobRow:
        """The job with this id, name or prefix, within the scope of the principal.

        Raises:
            StoreError: no job, or several jobs match.
        """
        return pages.find(self.store, text, self.principal.queues)

    def named(self, names: Iterable[str]) -> list[JobRow]:
        """The jobs with these names; the name of an array stands for all of its jobs.

        Raises:
            StoreError: no job, or several jobs match a name.
        """
        return pages.named(self.store, names, self.principal.queues)


def viewer(request: Request) -> RequestContext:
    """Requires the role viewer."""
    return _authenticate(request, Role.VIEWER)


def submitter(request: Request) -> RequestContext:
    """Requires the role submitter."""
    return _authenticate(request, Role.SUBMITTER)


def unscoped_viewer(request: Request) -> RequestContext:
    """Requires the role viewer for all queues: for routes whose answers are not scoped."""
    return _of_all_queues(_authenticate(request, Role.VIEWER))


def unscoped_page_viewer(request: Request) -> RequestContext:
    """As `unscoped_viewer`, for pages: a browser session is accepted too."""
    return _of_all_queues(_authenticate(request, Role.VIEWER, to_page=True))


def page_submitter(request: Request) -> RequestContext:
    """As `unscoped_page_viewer`, for forms of pages: requires the role submitter, and the form's token."""
    return _of_all_queues(_authenticate(request, Role.SUBMITTER, to_page=True, form=True))


def _of_all_queues(context: RequestContext) -> RequestContext:
    if context.principal.queues is not None:
        raise HttpError(
            403, f"the token {context.principal.name!r} is for some queues only; this shows them all"
        )
    return context


def _authenticate(
    request: Request, role: Role, *, to_page: bool = False, form: bool = False
) -> RequestContext:
    services: Services = request.app.state.services
    principal = services.authenticator.authenticate(request, to_page=to_page, form=form)
    if not principal.may(role):
        mine = principal.role.value
        raise HttpError(403, f"the token {principal.name!r} is a {mine}'s; this needs a {role.value}'s")
    return RequestContext(services, principal)


ViewerContext = Annotated[RequestContext, Depends(viewer)]
SubmitterContext = Annotated[RequestContext, Depends(submitter)]
