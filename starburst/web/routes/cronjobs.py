"""Routes about CronJobs: list, explain, cancel, hold, release; they are submitted as jobs are."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse

from starburst.app.jobs.cron_jobs import STEER, cron_job_keys
from starburst.store import cron_jobs
from starburst.store.cron_jobs import CronJob
from starburst.store.tokens import Role
from starburst.web.dependencies import RequestContext, SubmitterContext, ViewerContext
from starburst.web.errors import HttpError

router = APIRouter(prefix="/cronjobs", tags=["cronjobs"])

CronJobText = Annotated[str, Path(description="id, name, or the beginning of an id")]


@router.get("", summary="List CronJobs in order of creation")
def listing(context: ViewerContext) -> JSONResponse:
    """An array of what `starburst cronjobs -o json` shows."""
    known = cron_jobs.every(context.store, context.principal.queues)
    return JSONResponse([cron_job_keys(context.store, one) for one in known])


@router.get("/{cronjob}", summary="Where a CronJob stands")
def cronjob(context: ViewerContext, cronjob: CronJobText) -> JSONResponse:
    """The same of one, with a sentence that says when it ticks and what holds it up."""
    return JSONResponse(cron_job_keys(context.store, _found(context, cronjob)))


@router.post("/{cronjob}/cancel", summary="Remove a CronJob, and cancel its jobs that have not ended")
def cancel(context: SubmitterContext, cronjob: CronJobText) -> JSONResponse:
    """How it stood before. Submitters may cancel their own, admins all."""
    return _steer(context, cronjob, "cancel")


@router.post("/{cronjob}/hold", summary="Suspend a CronJob")
def hold(context: SubmitterContext, cronjob: CronJobText) -> JSONResponse:
    """How it stood before; who may is as for cancelling. Jobs that there are go on."""
    return _steer(context, cronjob, "hold")


@router.post("/{cronjob}/release", summary="Resume a suspended CronJob")
def release(context: SubmitterContext, cronjob: CronJobText) -> JSONResponse:
    """How it stood before; who may is as for cancelling. The last tick that was missed is made up for."""
    return _steer(context, cronjob, "release")


def _found(context: RequestContext, text: str) -> CronJob:
    return cron_jobs.find(context.store, text, context.principal.queues)


def _steer(context: RequestContext, text: str, how: str) -> JSONResponse:
    """Apply an action to a CronJob that the principal may change."""
    principal, one = context.principal, _found(context, text)
    if one.user != principal.name and not principal.may(Role.ADMIN):
        whose = f"CronJob {one.id} is {one.user or 'nobody'}'s"
        raise HttpError(403, f"{whose}; the token {principal.name!r} steers its own only")
    before = cron_job_keys(context.store, one)
    STEER[how](context.store, [one])
    return JSONResponse(before)
