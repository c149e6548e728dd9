"""`starburst cronjobs`: what is submitted again and again, and when; and CronJobs as arguments."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime

from starburst.app.jobs.cron_jobs import KIND
from starburst.app.jobs.job_keys import Keys
from starburst.app.times import age, local_clock, local_heading
from starburst.cli.backend.backend import Backend
from starburst.cli.backend.session import open_backend
from starburst.cli.jobs.request_answers import RequestAnswer
from starburst.cli.output import Column, Format, Listing, OutputOption

_PREFIX = f"{KIND}/"


def cronjobs(output: OutputOption = Format.TABLE) -> None:
    """List the CronJobs, their ticks and their jobs under way."""
    with open_backend() as backend:
        if output.for_people:
            backend.note_if_down()
        LISTING.print(backend.cron_jobs(), output)


def without_cron_jobs(texts: Iterable[str] | None) -> tuple[list[str], list[str]]:
    """Arguments that name jobs, and the names of CronJobs among them, which begin with cronjob/."""
    given = list(texts or ())
    return (
        [text for text in given if not text.startswith(_PREFIX)],
        [text.removeprefix(_PREFIX) for text in given if text.startswith(_PREFIX)],
    )


def known_cron_jobs(backend: Backend, texts: Iterable[str] | None) -> tuple[list[str], list[str]]:
    """As `without_cron_jobs`, once it is certain that there are these CronJobs.

    Raises:
        StoreError, UserError: one is not there; so nothing is asked of the others, and of no job.
    """
    given, named = without_cron_jobs(texts)
    names = list(dict.fromkeys(named))
    for name in names:
        backend.cron_job(name)
    return given, names


def steer_cron_jobs(
    backend: Backend, how: str, names: Iterable[str], *, now: bool = False
) -> list[RequestAnswer]:
    """Cancel, hold or release (`how`) CronJobs; what becomes of them and of their jobs.

    With `now` jobs that are cancelled get no grace.
    """
    told = []
    for name in names:
        before = backend.steer_cron_job(how, name)
        message = _answer(how, suspended=bool(before["suspended"]))
        told.append(RequestAnswer(str(before["id"]), message, kind=_PREFIX.rstrip("/")))
        if how == "cancel":
            if now and _jobs(before):
                backend.cancel(_jobs(before), now=True)
            told += [RequestAnswer(job_id, "is being cancelled") for job_id in _jobs(before)]
    return told


def _answer(how: str, *, suspended: bool) -> str:
    if how == "cancel":
        return "is cancelled: it ticks no more"
    if how == "hold":
        return "is suspended already" if suspended else "is suspended; its jobs go on"
    return "ticks again" if suspended else "is not suspended"


def _jobs(row: Keys) -> list[str]:
    found = row["jobs"]
    assert isinstance(found, list)
    return found


def _when(key: str) -> Column[Keys]:
    def show(row: Keys) -> str:
        text, now = row[key], time.time()
        return local_clock(now)(datetime.fromisoformat(str(text)).timestamp()) if text else ""

    return Column(local_heading(key.removesuffix("_at").upper(), time.time()), show)


def _since(row: Keys) -> str:
    return age(time.time() - datetime.fromisoformat(str(row["created_at"])).timestamp())


LISTING: Listing[Keys] = Listing(
    kind=KIND,
    name=lambda row: str(row["id"]),
    keys=lambda row: row,
    columns=(
        Column("CRONJOB", lambda row: str(row["id"])),
        Column("SCHEDULE", lambda row: str(row["schedule"])),
        Column("ZONE", lambda row: str(row["time_zone"])),
        _when("last_at"),
        Column("NEXT", lambda row: "suspended" if row["suspended"] else _when("next_at").show(row)),
        Column("JOBS", lambda row: " ".join(_jobs(row)), narrow="fold"),
        Column("USER", lambda row: str(row["user"]), wide=True),
        Column("QUEUE", lambda row: str(row["queue"]), wide=True),
        Column("AGE", _since, wide=True, right=True),
        Column("MESSAGE", lambda row: str(row["message"]), narrow="fold"),
    ),
    empty="there is no CronJob; submit one with starburst submit",
)
