"""Where a run says how far it is: the one thing that the token in its environment is good for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import ValidationError

from starburst.bus.hints import Said, Throughput
from starburst.store.job_status import Standing, called, standing
from starburst.store.tokens import Role
from starburst.web.auth import Caller
from starburst.web.dependencies import Desk
from starburst.web.errors import RefusedError

router = APIRouter(prefix="/jobs", tags=["jobs"])

#: A larger body is no report.
MOST_BYTES = 4096
CURRENT = "current"
#: As OpenAPI has it.
BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": Said.model_json_schema()}},
    }
}

JobText = Annotated[str, Path(description="whole id, or the name of one that lives")]
AttemptText = Annotated[
    str, Path(pattern=f"^([1-9][0-9]{{0,5}}|{CURRENT})$", description="number, or current")
]


@dataclass(frozen=True, slots=True)
class Reporter:
    """Somebody who may report on a job, and the job as it stands."""

    desk: Desk
    job: Standing


def reporter(request: Request, job: JobText) -> Reporter:
    """Lets in the runs of a job, and who may cancel it."""
    desk: Desk = request.app.state.desk
    caller = desk.gate.admit_report(request, job)
    if caller is None:
        found = standing(desk.office.store, job)
        if found is None:
            raise RefusedError(404, f"there is no job {job!r}")
        return Reporter(desk, found)
    found = _meant(desk, caller, job)
    own = caller.may(Role.SUBMITTER) and found.user == caller.name
    if not own and not caller.may(Role.ADMIN):
        whose = f"job {found.id} is {found.user or 'nobody'}'s"
        raise RefusedError(403, f"{whose}; the {caller.role.value} {caller.name!r} may not report on it")
    return Reporter(desk, found)


def _meant(desk: Desk, caller: Caller, text: str) -> Standing:
    """The job of an id, or the one that lives of a name: others may have had it before."""
    store = desk.office.store
    one = standing(store, text)
    found = [one] if one is not None else [job for job in called(store, text) if job.alive]
    found = [job for job in found if caller.sees(job.queue)]
    if not found:
        raise RefusedError(404, f"there is no job {text!r}, or none that runs")
    if len(found) > 1:
        raise RefusedError(400, f"{len(found)} jobs {text!r} run; give the id of one, such as {found[0].id}")
    return found[0]


async def said(request: Request, _: Annotated[Reporter, Depends(reporter)]) -> Said:
    """What is reported, which is read only of who may report."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise RefusedError(413, f"the body has more than {MOST_BYTES} bytes; a report is four numbers")
    try:
        return Said.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(400, "\n".join(map(_line, error.errors(include_url=False)))) from None


@router.put(
    "/{job}/attempts/{attempt}/progress",
    summary="Say how far a run is",
    status_code=204,
    openapi_extra=BODY,
    responses={410: {"description": "this run is over: report no more"}},
)
def progress(
    attempt: AttemptText,
    reporter: Annotated[Reporter, Depends(reporter)],
    said: Annotated[Said, Depends(said)],
) -> Response:
    """Iterations done, of how many (null if nobody knows), how many a second of the wall's clock, and by
    which task of a gang. It is a hint: it changes by when the run is expected to end, and nothing else.
    """
    job = reporter.job
    number = job.attempt if attempt == CURRENT else int(attempt)
    if number > job.attempt:
        raise RefusedError(404, f"job {job.id} has no attempt {number} yet; its last one is {job.attempt}")
    if number < job.attempt or not job.alive:
        raise RefusedError(410, f"attempt {number} of job {job.id} is over; report no more of it")
    reporter.desk.office.inbox.put(Throughput(job=job.id, attempt=number, **said.model_dump()))
    return Response(status_code=204)


def _line(problem: object) -> str:
    assert isinstance(problem, dict)
    place = ".".join(map(str, problem["loc"])) or "body"
    return f"{place}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
