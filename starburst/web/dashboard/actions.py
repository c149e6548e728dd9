"""Forms of the dashboard, for those whose token may: steering a job, submitting. And the log of a job."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from starburst.app.directories.packing import SubmittersFiles
from starburst.app.errors import UserError
from starburst.app.jobs import submitting
from starburst.app.jobs.cron_jobs import KIND
from starburst.app.jobs.job_keys import Keys
from starburst.app.reading.sources import ManifestText
from starburst.app.reading.workers import shared
from starburst.store.errors import StoreError
from starburst.store.quota import QuotaError
from starburst.store.tokens import Role
from starburst.web.dashboard.answers import HEADERS, missing, page, signed_in
from starburst.web.dashboard.render import draw_page
from starburst.web.dependencies import RequestContext, Services, page_submitter, unscoped_page_viewer
from starburst.web.errors import HttpError
from starburst.web.form_tokens import FIELD
from starburst.web.routes.bodies import read_form
from starburst.web.routes.jobs import asker, read_texts, steer_jobs
from starburst.web.routes.streams import EVENTS, logs, named_event
from starburst.web.submission_limits import SubmissionBody, SubmissionLimits
from translator.errors import ManifestErrors
from translator.kinds.command_job import name_of_command
from translator.kinds.conversion import command_manifest
from translator.kinds.gpu_request import GpuRequest
from translator.kinds.overrides import Overrides

router = APIRouter(include_in_schema=False)

PageView = Annotated[RequestContext, Depends(unscoped_page_viewer)]
FormSender = Annotated[RequestContext, Depends(page_submitter)]
#: What a button asks for.
STEERS = {
    "hold": submitting.hold,
    "release": submitting.release,
    "requeue": submitting.requeue,
    "cancel": submitting.cancel,
}


@router.get("/dashboard/jobs/{job}/log")
async def log(context: PageView, job: str, last_event_id: Annotated[str, Header()] = "") -> Response:
    """What a job writes, as server-sent events: for the page of the job.

    A refusal is an event, too: a browser shows no script the answer to a stream that it does not get.
    """
    try:
        return await logs(context=context, job=job, follow=True, accept=EVENTS, last_event_id=last_event_id)
    except (HttpError, UserError, StoreError) as refusal:
        return Response(named_event("error", error=str(refusal)), headers=HEADERS, media_type=EVENTS)


@router.get("/dashboard/jobs/{job}/actions")
def job_actions(request: Request, context: PageView, job: str) -> Response:
    """The buttons for a job that this user may press now; none for viewers."""
    row = context.job(job)
    mine = row.user == context.principal.name or context.principal.may(Role.ADMIN)
    verbs = submitting.steers_of(row.phase) if mine and context.principal.may(Role.SUBMITTER) else ()
    token = _services(request).form_tokens.for_page(request)
    html = draw_page("job_actions.html", 0.0, row=row, verbs=verbs, form_token=token)
    return page(request, html)


@router.post("/dashboard/jobs/{job}/steer")
async def steer(request: Request, context: FormSender, job: str) -> Response:
    """Hold, release, requeue or cancel a job, and go back to its page."""
    fields = await _fields(request)
    verb = STEERS.get(fields.get("verb", ""))
    if verb is None:
        raise HttpError(400, "verb: is none of hold, release, requeue and cancel")
    row = await run_in_threadpool(context.job, job)
    await run_in_threadpool(steer_jobs, context, [row], partial(verb, by=asker(context)))
    return RedirectResponse(f"/jobs/{quote(row.id)}", 303)


@router.get("/submit")
def submit_form(request: Request, context: PageView) -> Response:
    """The form for a manifest or a command."""
    if not context.principal.may(Role.SUBMITTER):
        return missing("this token may view jobs, not submit them", 403)
    return page(request, _form(request, {}, ""))


@router.post("/submit")
async def submit(request: Request, context: FormSender) -> Response:
    """Submit what the form has; mistakes are shown above it."""
    fields = await _fields(request)
    limits: SubmissionLimits = request.app.state.submission_limits
    try:
        async with limits.of(context.principal.key):
            rows = await run_in_threadpool(_submit, context, fields)
    except (UserError, ManifestErrors, QuotaError, StoreError, HttpError) as error:
        status = getattr(error, "status", 400)
        return HTMLResponse(_form(request, fields, str(error)), status, HEADERS)
    cron_jobs = [str(row["id"]) for row in rows if row.get("kind") == KIND]
    if cron_jobs:
        return page(request, _of_cron_jobs(request, cron_jobs, len(rows) - len(cron_jobs)))
    ids = [str(row["id"]) for row in rows]
    address = f"/jobs/{quote(ids[0])}" if len(ids) == 1 else f"/jobs?q={quote(_common(ids))}"
    return RedirectResponse(address, 303)


def _of_cron_jobs(request: Request, ids: list[str], jobs: int) -> str:
    """The page that names submitted CronJobs, which have none of their own, and counts jobs beside them."""
    beside = f" and {jobs} job{'' if jobs == 1 else 's'}" if jobs else ""
    told = f"{KIND}/{f', {KIND}/'.join(ids)}{beside}; starburst cronjobs lists CronJobs, and when they tick"
    return draw_page("missing.html", 0.0, signed_in=signed_in(request), title="Submitted", what=told)


def _submit(context: RequestContext, fields: dict[str, str]) -> list[Keys]:
    """What was submitted."""
    text = fields.get("manifest", "").strip()
    command = fields.get("command", "").strip()
    if bool(text) == bool(command):
        raise UserError("give a manifest or a command, one of the two")
    source = ManifestText("the form", text) if text else _of_command(command, fields)
    found = read_texts(context, SubmissionBody([source], partial(shared().read, gone=lambda: False)))
    if fields.get("hold"):
        found = submitting.held(found)
    return submitting.submit(context.store, found, context.snapshots)


def _of_command(command: str, fields: dict[str, str]) -> ManifestText:
    """The manifest of a command line, which has no directory to go along."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"command: {command!r}: {error}") from None
    if not (words and words[0].strip()):
        raise UserError(f"command: {command!r}: names no program")
    gpus = fields.get("gpus", "").strip()
    try:
        request = GpuRequest.parse(gpus) if gpus else None
    except ValueError as error:
        raise UserError(f"gpus: {gpus!r}: {error}") from None
    queue, image = fields.get("queue", "").strip(), fields.get("image", "").strip()
    overrides = Overrides(
        name=fields.get("name", "").strip(),
        gpus=request,
        image=image,
        hints={"queue": queue} if queue else {},
    )
    files = SubmittersFiles("", environ={}, reads=False)
    return ManifestText(
        "the command", json.dumps(command_manifest(words, name_of_command(words), files, overrides))
    )


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form that comes from one of our pages.

    Raises:
        HttpError: 403, it does not.
    """
    fields = await read_form(request)
    _services(request).form_tokens.check(request, fields.get(FIELD, ""))
    return fields


def _form(request: Request, fields: dict[str, str], problem: str) -> str:
    token = _services(request).form_tokens.for_page(request)
    return draw_page(
        "submit.html", 0.0, signed_in=signed_in(request), fields=fields, problem=problem, form_token=token
    )


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def _common(ids: list[str]) -> str:
    """The longest beginning that ids have in common, without the dash behind it."""
    first, last = min(ids), max(ids)
    length = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length].rstrip("-")
