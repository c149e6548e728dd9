"""News of one's own jobs for the browser, which shows them as notifications of the desktop."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from starburst.app.jobs.submitting import this_user
from starburst.app.notices.notices import EVENTS
from starburst.store.listings import pages, queries
from starburst.visible import visible
from starburst.web.dashboard.answers import HEADERS
from starburst.web.dependencies import RequestContext, unscoped_page_viewer

#: Decisions that are looked at per question, and news in an answer at most.
ROWS, NEWS = 500, 10

router = APIRouter(include_in_schema=False)


@router.get("/dashboard/notices")
def notices(
    context: Annotated[RequestContext, Depends(unscoped_page_viewer)],
    after: Annotated[int | None, Query(ge=0, lt=2**62)] = None,
) -> Response:
    """The end of the decision log, and what was decided since `after` of jobs of who asks: newest last.

    Those that need no token are this machine's user; their jobs are those of the scheduler's account.
    """
    head = pages.head(context.store)
    if after is None or after >= head:
        return JSONResponse({"head": head, "news": []}, headers=HEADERS)
    rows = queries.decisions(context.store, after_seq=max(after, head - ROWS), limit=ROWS)
    told = [row for row in rows if row.kind in EVENTS]
    user = context.principal.name or this_user()
    mine = {job.id for job in queries.jobs(context.store, ids={row.subject for row in told}, user=user)}
    news = [
        {"job": row.subject, "kind": row.kind, "text": visible(row.reason)}
        for row in told
        if row.subject in mine
    ]
    return JSONResponse({"head": rows[-1].seq if rows else head, "news": news[-NEWS:]}, headers=HEADERS)
