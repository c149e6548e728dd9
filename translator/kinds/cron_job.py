"""Reads a Kubernetes CronJob: the Job of each tick, and when it ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starburst.domain.cron_schedule import CronSchedule, ScheduleError, read_schedule
from starburst.domain.cron_timing import Concurrency, CronTiming
from starburst.domain.job import Submission
from translator.field import Field, Fields
from translator.kinds.read_kind import ReadKind
from translator.manifests.hints import PREFIX

#: Longest id of a CronJob: the ids of its jobs have the tick's minute behind it, and of arrays an index.
MAX_ID = 48
#: Letters of a schedule at most: every value of each field, one by one, has some 500.
MAX_SCHEDULE = 1000
#: The zone of a CronJob that names none; clusters run in it.
UTC = "UTC"
_MINUTE_S = 60

_TOP = Fields("a CronJob", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
_SPEC = Fields(
    "a CronJob spec",
    read=("concurrencyPolicy", "jobTemplate", "schedule", "startingDeadlineSeconds", "suspend", "timeZone"),
    noted={
        "failedJobsHistoryLimit": "jobs that ended stay in the listings, with their bills",
        "successfulJobsHistoryLimit": "jobs that ended stay in the listings, with their bills",
    },
)
_TEMPLATE = Fields("a job template", read=("metadata", "spec"))
_API_VERSIONS = ("batch/v1", "batch/v1beta1")


def is_cron_job(document: Field) -> bool:
    """Whether a document is a CronJob of Kubernetes."""
    return document.at("kind").value == "CronJob" and document.at("apiVersion").value in _API_VERSIONS


def read_cron_job(document: Field) -> ReadKind:
    """The Job of each tick, with its timing; problems and notes go to the document's report."""
    document.check(_TOP)
    spec = document.at("spec")
    spec.check(_SPEC)
    template = spec.at("jobTemplate")
    template.check(_TEMPLATE)
    if template.value is None:
        template.refuse("is missing; write the Job of each tick, with metadata and spec")
    deadline_s = spec.at("startingDeadlineSeconds").whole(1)
    timing = CronTiming(
        schedule=_schedule(spec),
        concurrency=Concurrency(
            spec.at("concurrencyPolicy").choice([each.value for each in Concurrency]) or "Allow"
        ),
        starting_deadline_s=None if deadline_s is None else float(deadline_s),
        suspended=spec.at("suspend").flag(),
    )
    if timing.suspended:
        spec.at("suspend").note("is suspended; let it tick with starburst release cronjob/NAME")
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(document.at("metadata"), template.at("metadata")),
        "spec": template.at("spec").value,
    }
    return ReadKind(manifest, {"spec": "spec.jobTemplate.spec"}, timing=timing)


def as_cron_job(found: Submission, timing: CronTiming) -> Submission:
    """The submission of a CronJob; its id leaves room for what the ids of its jobs have behind it."""
    name, _, end = found.job.id.rpartition("-")
    short = name[: MAX_ID - len(end) - 1].rstrip("-.")
    return replace(found, job=_with_id(found, f"{short}-{end}").job, timing=timing)


def job_of_tick(cron_job: Submission, tick: float, after: Sequence[str] = ()) -> Submission:
    """The job or array that a tick submits; it starts once jobs `after` have ended.

    The id has the minute of the tick, as the name of a Job in Kubernetes, so a tick has one job.
    """
    named = _with_id(cron_job, f"{cron_job.job.id}-{int(tick // _MINUTE_S)}")
    job = replace(named.job, after_any=(*named.job.after_any, *after))
    return replace(named, job=job, timing=None)


def _with_id(found: Submission, job_id: str) -> Submission:
    place = found.job.array
    array = None if place is None else replace(place, array=job_id)
    return replace(found, job=replace(found.job, id=job_id, array=array))


def _schedule(spec: Field) -> CronSchedule:
    """The schedule; one that is invalid is refused."""
    schedule, zone = spec.at("schedule"), spec.at("timeZone")
    text = schedule.text()
    if not text:
        schedule.refuse('is missing; write one such as "0 2 * * *"')
    elif len(text) > MAX_SCHEDULE:
        schedule.refuse(f"has more than {MAX_SCHEDULE} letters; write ranges")
        text = None
    if zone.value is None:
        zone.note(f"is not given; the schedule is read in {UTC}")
    try:
        return read_schedule(text or "@daily", zone.text() or UTC)
    except ScheduleError as error:
        (zone if "time zone" in str(error) and zone.value else schedule).refuse(str(error))
        return read_schedule("@daily", UTC)


def _metadata(own: Field, of_jobs: Field) -> dict[str, Any]:
    """The metadata of each Job: the template's, under the CronJob's name, with hints on either."""
    found: dict[str, Any] = {key: each.value for key, each in own.entries().items() if key not in _MERGED}
    for key in _MERGED:
        hints = {name: each.value for name, each in own.at(key).entries().items() if name.startswith(PREFIX)}
        both = {**hints, **{name: each.value for name, each in of_jobs.at(key).entries().items()}}
        if both:
            found[key] = both
    return found


_MERGED = ("labels", "annotations")
