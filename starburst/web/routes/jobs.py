"""Routes about jobs: submit, list, explain, cancel, hold, release, requeue, edit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import JSONResponse

from starburst.app.errors import UserError
from starburst.app.jobs import submitting
from starburst.app.jobs.job_keys import Keys, decision_keys, explanation_keys, job_keys, story_keys
from starburst.core.views.explain import Explanation
from starburst.domain.job import JobEdit, Phase, Submission
from starburst.domain.user import MAX_USER
from starburst.store.listings import pages, queries
from starburst.store.listings.row_types import SUBMITTED, JobRow
from starburst.store.store import Store
from starburst.store.tokens import Role
from starburst.web.dependencies import RequestContext, SubmitterContext, ViewerContext
from starburst.web.errors import HttpError
from starburst.web.routes.bodies import BODY, NAMES_BODY, names
from starburst.web.submission_limits import SubmissionBody, submission_body
from translator.manifests.hints import MAX_DAYS, MAX_PRIORITY

router = APIRouter(prefix="/jobs", tags=["jobs"])

PHASES = (SUBMITTED, *(phase.value for phase in Phase))
#: Ids per request.
MOST_IDS = 100

JobText = Annotated[str, Path(description="id, name, or the beginning of one")]
Names = Annotated[list[str], Depends(names)]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many at most")]
Now = Annotated[bool, Query(description="without a grace, also those that stop already; for admins")]
Span = Annotated[float | None, Query(ge=0, le=MAX_DAYS * 86400, description="seconds")]
After = Annotated[int, Query(ge=0, lt=2**63, description="only rows after this one")]


def job_edit(
    priority: Annotated[int | None, Query(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = None,
    max_wait_s: Span = None,
    runtime_estimate_s: Annotated[
        float | None, Query(gt=0, le=MAX_DAYS * 86400, description="seconds")
    ] = None,
) -> JobEdit:
    """The changes that the query names."""
    return JobEdit(priority, max_wait_s, runtime_estimate_s)


Edit = Annotated[JobEdit, Depends(job_edit)]


@router.post("", status_code=201, summary="Submit jobs, all or none", openapi_extra=BODY)
def submit(
    context: SubmitterContext,
    body: Annotated[SubmissionBody, Depends(submission_body)],
    *,
    dry_run: Annotated[bool, Query(description="say what would happen; submit nothing")] = False,
    hold: Annotated[bool, Query(description="keep them out of the queue until they are released")] = False,
    user: Annotated[str, Query(max_length=MAX_USER, description="whose jobs; an admin may say so")] = "",
    allow_unsatisfiable: Annotated[
        bool, Query(description="also what no node and no offer could ever hold")
    ] = False,
) -> JSONResponse:
    """Answers `id`, `name` and `notes` of each; of a dry run what `starburst submit --dry-run` does.

    Jobs belong to the user of the token's name; without tokens to who runs Starburst.
    """
    found = read_texts(context, body, user)
    if hold:
        found = submitting.held(found)
    if dry_run:
        return JSONResponse(context.shown(submitting.dry_run(context.store, found)))
    rows = submitting.submit(
        context.store,
        found,
        context.snapshots,
        allow_unsatisfiable=allow_unsatisfiable,
        queues=context.principal.queues,
    )
    return JSONResponse(rows, 201)


def read_texts(context: RequestContext, body: SubmissionBody, user: str = "") -> list[Submission]:
    """The jobs of a body, for a user; by default the one who asks.

    Raises:
        HttpError: 403, they are of another user or queue than the principal may submit for.
        UserError: a manifest is invalid.
    """
    principal = context.principal
    own = asker(context)
    if user not in ("", own) and not principal.may(Role.ADMIN):
        raise HttpError(
            403, f"user: {user!r}: the token {principal.name!r} submits for {own!r} only; leave it out"
        )
    found = submitting.read_sources(
        context.store,
        body.sources,
        user or own,
        principal.queues,
        submitter=principal.submitter,
        read=body.read,
    )
    strange = {s.job.queue for s in found if not principal.sees(s.job.queue)}
    if strange:
        known = " and ".join(principal.queues or ())
        raise HttpError(403, f"queue: {min(strange)!r}: the token {principal.name!r} is for {known} only")
    return found


@router.get("", summary="List jobs in order of arrival")
def jobs(
    *,
    context: ViewerContext,
    phase: Annotated[list[str], Query(description=f"only in these phases: {', '.join(PHASES)}")] = [],  # noqa: B006
    user: Annotated[str | None, Query(description="only this user's")] = None,
    queue: Annotated[list[str], Query(description="only of these queues")] = [],  # noqa: B006
    id: Annotated[list[str], Query(max_length=MOST_IDS, description="only these")] = [],  # noqa: B006
    name: Annotated[list[str], Query(max_length=MOST_IDS, description="only these, or all of an array")] = [],  # noqa: B006
    after: Annotated[str | None, Query(description="only jobs after this one: the last of a page")] = None,
    limit: Limit = 1000,
) -> JSONResponse:
    """An array of what `starburst status -o json` shows; one shorter than `limit` is the last page.

    By `id` or `name` it is all of those at once that are chosen otherwise, too; a `name` that is nobody's is
    refused.
    """
    for word in phase:
        if word not in PHASES:
            raise UserError(f"phase: {word!r} is not a phase; choose one of {', '.join(PHASES)}")
    mine = context.principal.queues
    queues = mine if not queue else [one for one in queue if context.principal.sees(one)]
    if name or id:
        rows = [
            row
            for row in (context.named(name) if name else queries.jobs(context.store, ids=id))
            if (not id or row.id in id)
            and (not phase or row.phase in phase)
            and user in (None, row.user)
            and (queues is None or row.queue in queues)
        ]
    else:
        last = None if after is None else context.job(after)
        rows = pages.page(context.store, phases=phase, user=user, queues=queues, after=last, limit=limit)
    return JSONResponse(context.shown([job_keys(row) for row in rows]))


@router.get("/{job}", summary="One job's story")
def job(context: ViewerContext, job: JobText) -> JSONResponse:
    """What `starburst status JOB -o json` shows."""
    row = context.job(job)
    story = queries.decisions(context.store, row.id)
    return JSONResponse(context.shown([story_keys(row, _explained(context, row).sentence, story)])[0])


@router.get("/{job}/explain", summary="Where a job stands and why, in one sentence")
def explain(context: ViewerContext, job: JobText) -> JSONResponse:
    """What `starburst explain -o json` shows. Times in the sentence are of the server's zone."""
    row = context.job(job)
    return JSONResponse(context.shown([{"id": row.id, **explanation_keys(_explained(context, row))}])[0])


@router.get("/{job}/events", summary="What was decided on a job")
def events(context: ViewerContext, job: JobText, after: After = 0, limit: Limit = 1000) -> JSONResponse:
    """An array of what `starburst events JOB -o json` shows."""
    rows = queries.decisions(context.store, context.job(job).id, after_seq=after, limit=limit)
    return JSONResponse(context.shown([decision_keys(row) for row in rows]))


@router.post("/cancel", summary="Cancel jobs and arrays, all or none", openapi_extra=NAMES_BODY)
def cancel_all(context: SubmitterContext, names: Names, now: Now = False) -> JSONResponse:
    """How they stood before, for each name one job, or all of an array; who may is as for one job."""
    return JSONResponse(_cancel(context, context.named(names), now=now))


@router.post("/hold", summary="Hold jobs and arrays, all or none", openapi_extra=NAMES_BODY)
def hold_all(context: SubmitterContext, names: Names) -> JSONResponse:
    """How they stood before; who may is as for cancelling."""
    return JSONResponse(
        steer_jobs(context, context.named(names), partial(submitting.hold, by=asker(context)))
    )


@router.post("/release", summary="Release jobs and arrays, all or none", openapi_extra=NAMES_BODY)
def release_all(context: SubmitterContext, names: Names) -> JSONResponse:
    """How they stood before; who may is as for cancelling."""
    return JSONResponse(
        steer_jobs(context, context.named(names), partial(submitting.release, by=asker(context)))
    )


@router.post("/requeue", summary="Requeue jobs and arrays, all or none", openapi_extra=NAMES_BODY)
def requeue_all(context: SubmitterContext, names: Names) -> JSONResponse:
    """How they stood before; who may is as for cancelling."""
    return JSONResponse(
        steer_jobs(context, context.named(names), partial(submitting.requeue, by=asker(context)))
    )


@router.post("/edit", summary="Change jobs and arrays that wait, all or none", openapi_extra=NAMES_BODY)
def edit_all(context: SubmitterContext, names: Names, edit: Edit) -> JSONResponse:
    """How they stood before; who may is as for cancelling."""
    return JSONResponse(_edit(context, context.named(names), edit))


@router.post("/{job}/cancel", summary="Cancel a job, wherever it is")
def cancel(context: SubmitterContext, job: JobText, now: Now = False) -> JSONResponse:
    """How the job stood when it was asked for; doing it twice is doing it once.

    Submitters may cancel their own jobs, admins all, and only admins `now`.
    """
    return JSONResponse(_cancel(context, [context.job(job)], now=now)[0])


@router.post("/{job}/hold", summary="Keep a job that waits out of the queue")
def hold(context: SubmitterContext, job: JobText) -> JSONResponse:
    """How the job stood before; who may is as for cancelling."""
    return JSONResponse(
        steer_jobs(context, [context.job(job)], partial(submitting.hold, by=asker(context)))[0]
    )


@router.post("/{job}/release", summary="Let a held job into the queue")
def release(context: SubmitterContext, job: JobText) -> JSONResponse:
    """How the job stood before; who may is as for cancelling."""
    return JSONResponse(
        steer_jobs(context, [context.job(job)], partial(submitting.release, by=asker(context)))[0]
    )


@router.post("/{job}/requeue", summary="Stop a run and let its job wait again")
def requeue(context: SubmitterContext, job: JobText) -> JSONResponse:
    """How the job stood before; who may is as for cancelling."""
    return JSONResponse(
        steer_jobs(context, [context.job(job)], partial(submitting.requeue, by=asker(context)))[0]
    )


@router.post("/{job}/edit", summary="Change the priority, wait or estimate of a job that waits")
def edit(context: SubmitterContext, job: JobText, edit: Edit) -> JSONResponse:
    """How the job stood before; who may is as for cancelling."""
    return JSONResponse(_edit(context, [context.job(job)], edit)[0])


def asker(context: RequestContext) -> str:
    """The user in whose name a request is made: the token's, without tokens who runs Starburst."""
    return context.principal.name or submitting.this_user()


def _edit(context: RequestContext, rows: list[JobRow], change: JobEdit) -> list[Keys]:
    if not change.changes:
        raise HttpError(400, "query: name what to change: priority, max_wait_s or runtime_estimate_s")
    admin = context.principal.may(Role.ADMIN)
    return steer_jobs(context, rows, partial(submitting.edit, change=change, admin=admin))


def _cancel(context: RequestContext, rows: list[JobRow], *, now: bool) -> list[Keys]:
    """Cancel with grace, or `now`, which is for admins: other jobs on the machine may lose promised time."""
    if now and not context.principal.may(Role.ADMIN):
        raise HttpError(403, f"now: is for admins; the token {context.principal.name!r} cancels with a grace")
    return steer_jobs(context, rows, partial(submitting.cancel, now=now, by=asker(context)))


def steer_jobs(
    context: RequestContext, rows: list[JobRow], tell: Callable[[Store, list[JobRow]], None]
) -> list[Keys]:
    """Apply an action to jobs that the principal may change."""
    principal = context.principal
    for row in rows:
        if row.user != principal.name and not principal.may(Role.ADMIN):
            whose = f"job {row.id} is {row.user or 'nobody'}'s"
            raise HttpError(403, f"{whose}; the token {principal.name!r} steers its own only")
    tell(context.store, rows)
    return context.shown([job_keys(row) for row in rows])


def _explained(context: RequestContext, row: JobRow) -> Explanation:
    return context.snapshots.explanation(row, context.principal.sees)
