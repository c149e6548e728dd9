"""The route for progress reports of runs; a report token gives access to nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import ValidationError

from starburst.bus.hints import Said, ThroughputHint
from starburst.store.listings.job_status import JobStatus, job_status, jobs_named
from starburst.store.tokens import Role
from starburst.web.auth import Principal
from starburst.web.dependencies import Services
from starburst.web.errors import HttpError

router = APIRouter(prefix="/jobs", tags=["jobs"])

#: Bytes of the largest report.
MOST_BYTES = 4096
CURRENT = "current"
#: Request body in OpenAPI.
BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": Said.model_json_schema()}},
    }
}

ReportedJob = Annotated[str, Path(description="whole id, or the name of one that lives")]
AttemptText = Annotated[
    str, Path(pattern=f"^([1-9][0-9]{{0,5}}|{CURRENT})$", description="number, or current")
]


@dataclass(frozen=True, slots=True)
class ProgressReporter:
    """An authenticated sender of reports, and the status of its job."""

    services: Services
    job: JobStatus


def reporter(request: Request, job: ReportedJob) -> ProgressReporter:
    """Requires the report token of the job, or the rights to cancel the job."""
    services: Services = request.app.state.services
    principal = services.authenticator.authenticate_report(request, job)
    if principal is None:
        found = job_status(services.app_context.store, job)
        if found is None:
            raise HttpError(404, f"there is no job {job!r}")
        return ProgressReporter(services, found)
    found = _meant(services, principal, job)
    own = principal.may(Role.SUBMITTER) and found.user == principal.name
    if not own and not principal.may(Role.ADMIN):
        whose = f"job {found.id} is {found.user or 'nobody'}'s"
        raise HttpError(403, f"{whose}; the {principal.role.value} {principal.name!r} may not report on it")
    return ProgressReporter(services, found)


def _meant(services: Services, principal: Principal, text: str) -> JobStatus:
    """The job with this id, or the one live job with this name."""
    store = services.app_context.store
    one = job_status(store, text)
    found = [one] if one is not None else [job for job in jobs_named(store, text) if job.alive]
    found = [job for job in found if principal.sees(job.queue)]
    if not found:
        raise HttpError(404, f"there is no job {text!r}, or none that runs")
    if len(found) > 1:
        raise HttpError(400, f"{len(found)} jobs {text!r} run; give the id of one, such as {found[0].id}")
    return found[0]


async def said(request: Request, _: Annotated[ProgressReporter, Depends(reporter)]) -> Said:
    """The body; it is read only after the sender is authenticated."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HttpError(413, f"the body has more than {MOST_BYTES} bytes; a report is four numbers")
    try:
        return Said.model_validate_json(body)
    except ValidationError as error:
        raise HttpError(400, "\n".join(map(_line, error.errors(include_url=False)))) from None


@router.put(
    "/{job}/attempts/{attempt}/progress",
    summary="Say how far a run is",
    status_code=204,
    openapi_extra=BODY,
    responses={410: {"description": "this run is over: report no more"}},
)
def progress(
    attempt: AttemptText,
    reporter: Annotated[ProgressReporter, Depends(reporter)],
    said: Annotated[Said, Depends(said)],
) -> Response:
    """Iterations done, of how many (null if nobody knows), how many a second of the wall's clock, and by
    which task of a gang. It is a hint: it changes by when the run is expected to end, and nothing else.
    """
    job = reporter.job
    number = job.attempt if attempt == CURRENT else int(attempt)
    if number > job.attempt:
        raise HttpError(404, f"job {job.id} has no attempt {number} yet; its last one is {job.attempt}")
    if number < job.attempt or not job.alive:
        raise HttpError(410, f"attempt {number} of job {job.id} is over; report no more of it")
    reporter.services.app_context.inbox.put(ThroughputHint(job=job.id, attempt=number, **said.model_dump()))
    return Response(status_code=204)


def _line(problem: object) -> str:
    assert isinstance(problem, dict)
    place = ".".join(map(str, problem["loc"])) or "body"
    return f"{place}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
