"""`starburst cancel`, `hold`, `release`, `requeue`, `edit`: requests to the scheduler about stored jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from starburst.app.errors import UserError
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.completion import complete_jobs, complete_queues
from starburst.cli.jobs.cronjobs import known_cron_jobs, steer_cron_jobs
from starburst.cli.jobs.folding import array_of
from starburst.cli.jobs.names import job_ids
from starburst.cli.jobs.request_answers import RequestAnswer, tell
from starburst.cli.jobs.selection import PHASES, Selection
from starburst.cli.output import Format, OutputOption, say
from starburst.domain.job import JobEdit, Phase, is_over
from starburst.store.listings.row_types import SUBMITTED, JobRow
from translator.duration import seconds
from translator.manifests.hints import MAX_DAYS, MAX_PRIORITY

DAY_S = 86_400
Jobs = Annotated[
    list[str],
    typer.Argument(
        help="Ids, names or unique beginnings of them; of arrays, all their jobs.",
        autocompletion=complete_jobs,
    ),
]
OpenJobs = Annotated[
    list[str] | None,
    typer.Argument(
        help="Ids, names or unique beginnings of them; of arrays, all their jobs.",
        autocompletion=complete_jobs,
    ),
]


def cancel(
    jobs: OpenJobs = None,
    *,
    user: Annotated[str | None, typer.Option("--user", help="All jobs of this user.")] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", help="All jobs of this queue.", autocompletion=complete_queues),
    ] = None,
    array: Annotated[
        list[str] | None,
        typer.Option("--array", help="All jobs of this array.", autocompletion=complete_jobs),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before many are cancelled.")] = False,
    now: Annotated[
        bool,
        typer.Option("--now", help="Give no grace; over HTTP for admins. Also for jobs that stop already."),
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Cancel jobs, wherever they are. A running one gets SIGTERM and its grace first."""
    with open_backend() as backend:
        given, cron_jobs = known_cron_jobs(backend, jobs)
        names = job_ids(backend, [*given, *(array or ())])
        if (names or cron_jobs) and (user or queue or all_):
            raise UserError("name jobs, or choose them with --user, --queue or --all; not both")
        if not (names or cron_jobs):
            if not (user or queue or all_):
                raise UserError(
                    "name the jobs to cancel, or choose them with --user, --queue, --array or --all"
                )
            names = _confirmed(_open_jobs(backend, user, queue or ()), yes=yes)
        rows = backend.cancel(names, now=now) if names else []
        told = steer_cron_jobs(backend, "cancel", cron_jobs, now=now)
        tell([*told, *_answers(rows, _cancel_answer)], output)
        backend.note_if_down()


def _open_jobs(backend: Backend, user: str | None, queues: list[str] | tuple[()]) -> list[JobRow]:
    """The jobs that have not ended, of a user and of queues if given."""
    return Selection([phase for phase in PHASES if not is_over(phase)], user, queues).rows(backend)


def _confirmed(rows: list[JobRow], *, yes: bool) -> list[str]:
    """The ids of these jobs, once the user agrees to cancel them."""
    if not rows:
        say("no such job is open", sys.stderr)
        return []
    if not yes:
        alive = sum(row.phase in (Phase.RUNNING.value, Phase.STARTING.value) for row in rows)
        of_users = ", ".join(sorted({row.user or "nobody" for row in rows}))
        what = f"cancel {len(rows)} job{'s' if len(rows) > 1 else ''} of {of_users}, {alive} of them running"
        if not sys.stdin.isatty():
            raise UserError(f"would {what}; to do it without a question, add --yes")
        typer.confirm(f"{what}?", abort=True)
    return [row.id for row in rows]


def hold(jobs: Jobs, *, output: OutputOption = Format.TABLE) -> None:
    """Keep waiting jobs out of the queue until they are released."""
    with open_backend() as backend:
        given, cron_jobs = known_cron_jobs(backend, jobs)
        rows = backend.hold(job_ids(backend, given)) if given else []
        told = steer_cron_jobs(backend, "hold", cron_jobs)
        tell([*told, *_answers(rows, _hold_answer)], output)
        backend.note_if_down()


def release(jobs: Jobs, *, output: OutputOption = Format.TABLE) -> None:
    """Let held jobs wait again; their waits begin anew."""
    with open_backend() as backend:
        given, cron_jobs = known_cron_jobs(backend, jobs)
        rows = backend.release(job_ids(backend, given)) if given else []
        told = steer_cron_jobs(backend, "release", cron_jobs)
        tell([*told, *_answers(rows, _release_answer)], output)
        backend.note_if_down()


def requeue(jobs: Jobs, *, output: OutputOption = Format.TABLE) -> None:
    """Stop running jobs and queue them again. They have their grace, a new wait and their old place."""
    with open_backend() as backend:
        tell(_answers(backend.requeue(job_ids(backend, jobs)), _requeue_answer), output)
        backend.note_if_down()


def edit(
    jobs: Jobs,
    *,
    priority: Annotated[
        int | None, typer.Option(min=-MAX_PRIORITY, max=MAX_PRIORITY, metavar="N", help="Higher goes first.")
    ] = None,
    max_wait: Annotated[str, typer.Option(metavar="T", help="Leave for the cloud after this, in all.")] = "",
    estimate: Annotated[str, typer.Option(metavar="T", help="How long it will run.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Change the priority, wait or estimate of waiting jobs."""
    change = JobEdit(priority, _span("--max-wait", max_wait), _span("--estimate", estimate))
    if not change.changes:
        raise UserError("name what to change, with --priority, --max-wait or --estimate")
    with open_backend() as backend:
        tell(_answers(backend.edit(job_ids(backend, jobs), change), _edit_answer), output)
        backend.note_if_down()


def _span(option: str, text: str) -> float | None:
    """A time in seconds; None if it is not given."""
    if not text:
        return None
    try:
        found_s = seconds(text)
    except ValueError as bad:
        raise UserError(f"{option}: {text!r}: {bad}") from None
    if found_s > MAX_DAYS * DAY_S or (option == "--estimate" and not found_s):
        raise UserError(
            f"{option}: {text!r}: must be {'more than 0 and ' if not found_s else ''}at most {MAX_DAYS}d"
        )
    return found_s


def _answers(rows: Iterable[JobRow], answer: Callable[[str], str]) -> list[RequestAnswer]:
    return [
        RequestAnswer(row.id, answer(row.phase), row.phase, array=array_of(row.id, row.name)) for row in rows
    ]


def _cancel_answer(phase: str) -> str:
    return f"is over already: {phase}" if is_over(phase) else "is being cancelled"


def _release_answer(phase: str) -> str:
    return "is being released" if phase in (SUBMITTED, Phase.HELD.value) else f"is not held: it is {phase}"


def _edit_answer(phase: str) -> str:
    if is_over(phase):
        return f"is over already: {phase}"
    waits = phase in (SUBMITTED, Phase.QUEUED.value, Phase.HELD.value, Phase.BLOCKED.value)
    return "is being changed" if waits else f"is not changed: it waits no longer, it is {phase}"


def _requeue_answer(phase: str) -> str:
    if is_over(phase):
        return f"is over already: {phase}; submit it again"
    runs = phase in (Phase.STARTING, Phase.RUNNING)
    return "is being stopped, and queues again" if runs else f"does not run: it is {phase}"


def _hold_answer(phase: str) -> str:
    if is_over(phase):
        return f"is over already: {phase}"
    if phase == Phase.HELD.value:
        return "is held already"
    waits = phase in (SUBMITTED, Phase.QUEUED.value, Phase.BLOCKED.value)
    return "is being held" if waits else f"is not held: it waits no longer, it is {phase}"
