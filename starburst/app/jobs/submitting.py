"""Submits and steers jobs for CLI, HTTP API and bus; a submission is all or nothing."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from starburst.app.config import Config
from starburst.app.config.sites import KubernetesConfig
from starburst.app.errors import UserError
from starburst.app.jobs import cron_jobs
from starburst.app.jobs.dependencies import resolved
from starburst.app.jobs.job_keys import Keys, explanation_keys
from starburst.app.jobs.satisfiable import refuse_unsatisfiable
from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.app.reading import requests
from starburst.app.reading.requests import ManifestTexts, ReadAnswer
from starburst.app.reading.sources import ManifestText
from starburst.app.times import local_clock
from starburst.app.wiring.kube_client import connect, need_kubernetes
from starburst.app.wiring.stored import intake_rules, live_core, stored_config
from starburst.core.steps.admission import EDITABLE as WAITING_PHASES
from starburst.core.steps.unblocking import HOLDABLE as PHASES
from starburst.core.steps.unblocking import RUNS
from starburst.core.views.explain import foretell
from starburst.domain.array import member_ids, members
from starburst.domain.job import ANYBODY, CloudChoice, JobEdit, Phase, Submission, Submitter, is_over
from starburst.domain.user import USER_IS, as_user, is_user
from starburst.store.listings.pages import QueueScope
from starburst.store.listings.queries import ended
from starburst.store.listings.row_types import SUBMITTED, JobRow
from starburst.store.store import Store
from translator.manifests.tenancy import rule

#: Phases in which a job can be held.
HOLDABLE = (SUBMITTED, *(phase.value for phase in PHASES))
#: Phases in which a job can be queued again.
REQUEUABLE = tuple(phase.value for phase in RUNS)
#: Phases in which a job can be changed.
EDITABLE = (SUBMITTED, *(phase.value for phase in WAITING_PHASES))
#: Jobs of one array that a dry run foretells.
MOST_FORETOLD = 1000
ReadManifests = Callable[[ManifestTexts], ReadAnswer]


def read_sources(
    store: Store,
    sources: Iterable[ManifestText],
    user: str,
    queues: QueueScope = None,
    *,
    submitter: Submitter = ANYBODY,
    seed: str | None = None,
    read: ReadManifests = requests.read,
) -> list[Submission]:
    """The submissions in the texts. The embedded cluster requires a command; an image alone is not enough.

    Dependencies are looked up in `queues`; None is all. `submitter` limits what jobs may ask for. `seed`
    makes ids reproducible; None draws random ones. `read` parses the texts, possibly in another process.

    Raises:
        UserError: a text is unreadable or invalid; one line per problem of all texts.
    """
    if user and not is_user(user):
        raise UserError(f"user: {user!r}: {USER_IS}")
    config = stored_config(store)
    answer = read(
        ManifestTexts(
            tuple(sources),
            rules=intake_rules(config),
            queues=_queues(config, queues),
            most_tasks=config.limits.tasks_per_submission,
            seed=seed,
        )
    )
    problems = [*answer.problems, *_not_allowed(config, answer, submitter)]
    if not submitter.admin:
        problems += requests.too_urgent(config.limits.priority, answer)
    if problems:
        raise UserError("\n".join(problems))
    owned = [
        replace(item, job=replace(item.job, user=user), workload=replace(item.workload, submitter=submitter))
        for item in (_noted(item, config.policy.max_grace) for item in answer.submissions)
    ]
    owned = _taken_by_the_server(config, answer, owned)
    return resolved(store, owned, queues)


def _queues(config: Config, seen: QueueScope) -> tuple[str, ...] | None:
    """The known queues within the submitter's scope; None: any name is allowed."""
    there = [queue.name for queue in config.queues]
    return tuple(name for name in there if seen is None or name in seen) if there else None


def _not_allowed(config: Config, answer: ReadAnswer, submitter: Submitter) -> list[str]:
    """Requests for cluster resources that the submitter has no right to."""
    tenancy = config.tenancy()
    if tenancy is None:
        return []
    problems = []
    offers = intake_rules(config).offers
    for place, item in zip(answer.places, answer.submissions, strict=True):
        job, manifest = item.job, item.workload.manifest
        if manifest is None:
            continue
        leaves = offers and job.cloud is not CloudChoice.NEVER
        ruling = rule(tenancy, json.loads(manifest), job.queue, submitter, leaves=leaves)
        problems += [f"{place}: {error.line}" for error in ruling.errors]
    return problems


def _taken_by_the_server(
    config: Config, answer: ReadAnswer, submissions: list[Submission]
) -> list[Submission]:
    """The submissions, if a Kubernetes cluster would take their objects; else one line per cause.

    A cluster that does not answer is no reason to refuse a job, only for a note.
    """
    tenancy = config.tenancy()
    asked = [item for item in submissions if item.job.cloud is not CloudChoice.ONLY]
    if tenancy is None or not asked or not isinstance(config.cluster, KubernetesConfig):
        return submissions
    need_kubernetes()
    from starburst.app.jobs.server_dry_run import server_dry_run  # noqa: PLC0415 - an optional dependency

    told = asyncio.run(server_dry_run(partial(connect, config.cluster), tenancy, asked))
    places = dict(zip((item.job.id for item in submissions), answer.places, strict=True))
    problems = [
        f"{places[item.job.id]}: {line}"
        for item, lines in zip(asked, told.refusals, strict=True)
        for line in lines
    ]
    if problems:
        raise UserError("\n".join(problems))
    if not told.unasked:
        return submissions
    first, *others = submissions
    note = f"the cluster was not asked whether it takes it: {told.unasked}"
    return [replace(first, notes=(*first.notes, note)), *others]


def _noted(item: Submission, max_grace_s: float) -> Submission:
    """Add a note if the requested grace exceeds the configured maximum."""
    if item.job.grace_s <= max_grace_s:
        return item
    note = (
        f"terminationGracePeriodSeconds: {item.job.grace_s:g} s: a run that is told to stop has at most "
        f"{max_grace_s:g} s here (policy.max_grace)"
    )
    return replace(item, notes=(*item.notes, note))


def held(submissions: Iterable[Submission]) -> list[Submission]:
    """The submissions, marked to be held until they are released; CronJobs are suspended."""
    return [
        replace(item, job=replace(item.job, hold=True))
        if item.timing is None
        else replace(item, timing=replace(item.timing, suspended=True))
        for item in submissions
    ]


def submit(
    store: Store,
    submissions: Sequence[Submission],
    snapshots: SnapshotCache | None = None,
    *,
    allow_unsatisfiable: bool = False,
    queues: QueueScope = None,
) -> list[Keys]:
    """Store jobs for the scheduler, all or none; `id`, `name` and `notes` of each, of CronJobs `kind` too.

    An array is stored as a whole; the answer has each of its jobs.

    `snapshots` is the cache of the calling process, if it has one. CronJobs replace those in `queues` only.

    Raises:
        UserError: one demands machines that no offer has, or what neither cluster nor cloud could hold.
        QuotaError: more jobs would wait than may.
    """
    snapshots = snapshots or SnapshotCache(store)
    _refuse_barred(snapshots, submissions)
    submissions = _with_places(snapshots, submissions)
    config = stored_config(store)
    if not allow_unsatisfiable:
        nodes_change = isinstance(config.cluster, KubernetesConfig)
        submissions = refuse_unsatisfiable(store, submissions, nodes_change=nodes_change)
    once = [item for item in submissions if item.timing is None]
    again = [item for item in submissions if item.timing is not None]
    _refuse_twins(again)
    now = time.time()
    with store.submitting(once, now, config.limits.quota(config.queues)) as conn:
        added = cron_jobs.add(conn, again, now, queues)
    return [*(row for item in once for row in _answers(item)), *added]


def _answers(item: Submission) -> list[Keys]:
    """The answer about a job, or about each job of an array."""
    base = len(item.job.id)
    return [
        {"id": job_id, "name": f"{item.job.name}{job_id[base:]}", "notes": list(item.notes)}
        for job_id in member_ids(item)
    ]


def _refuse_twins(cron_jobs: Sequence[Submission]) -> None:
    """Refuse CronJobs of one name, of which the second would replace the first."""
    named = Counter(item.job.name for item in cron_jobs)
    twice = [name for name, count in named.items() if count > 1]
    if twice:
        raise UserError(f"CronJob {twice[0]}: there are several of this name; give each a name of its own")


def dry_run(store: Store, submissions: Sequence[Submission]) -> list[Keys]:
    """The predicted fate of each job, of an array's first ones, from a copy of the core; stores nothing."""
    core = live_core(store)
    submissions = [job for item in submissions for job in _foretold(item)]
    jobs = [item.job for item in submissions]
    others = {name for job in jobs for name in job.comes_after}
    told = foretell(core, jobs, local_clock(core.state.now), ended(store, others))
    return [
        {"name": s.job.name, **explanation_keys(e), "notes": [*s.notes, *_of_ticks(s)]}
        for s, e in zip(submissions, told, strict=True)
    ]


def _foretold(item: Submission) -> list[Submission]:
    """The jobs of a submission whose fate a dry run tells: all, or the first ones of a long array."""
    jobs = members(item)
    if len(jobs) <= MOST_FORETOLD:
        return jobs
    rest = f"a dry run tells of the first {MOST_FORETOLD:,} jobs of an array; this one has {len(jobs):,}"
    return [replace(job, notes=(*job.notes, rest)) for job in jobs[:MOST_FORETOLD]]


def _of_ticks(item: Submission) -> list[str]:
    """A note that the fate of a CronJob's job is that of one which is submitted now."""
    return (
        [] if item.timing is None else [f"a job would be submitted at {item.timing.schedule.text}, not now"]
    )


def cancel(store: Store, rows: Iterable[JobRow], *, by: str, now: bool = False) -> None:
    """Request the cancellation of jobs that have not ended; `now` (admins only) gives no grace.

    `by`, here and below, is the user who asks, whom the decision log names.
    """
    store.cancel([row.id for row in rows if not is_over(row.phase)], time.time(), now=now, by=by)


def hold(store: Store, rows: Iterable[JobRow], *, by: str) -> None:
    """Request that pending jobs be held."""
    store.hold([row.id for row in rows if row.phase in HOLDABLE], time.time(), by=by)


def release(store: Store, rows: Iterable[JobRow], *, by: str) -> None:
    """Request that held jobs be released; other jobs stay as they are."""
    store.release([row.id for row in rows if not is_over(row.phase)], time.time(), by=by)


def edit(store: Store, rows: Iterable[JobRow], change: JobEdit, *, admin: bool) -> None:
    """Request changes of jobs that wait; others stay as they are.

    Raises:
        UserError: the priority is above what is allowed to those who are no admins.
    """
    most = stored_config(store).limits.priority
    if change.priority is not None and change.priority > most and not admin:
        raise UserError(
            f"priority: {change.priority}: must be at most {most} for who is no admin (limits.priority)"
        )
    store.edit([row.id for row in rows if row.phase in EDITABLE], change, time.time())


def requeue(store: Store, rows: Iterable[JobRow], *, by: str) -> None:
    """Request that the runs of these jobs be stopped and the jobs queue again; others stay as they are."""
    store.requeue([row.id for row in rows if row.phase in REQUEUABLE], time.time(), by=by)


def steers_of(phase: str) -> list[str]:
    """What can be asked of a job in a phase: hold, release, requeue, cancel."""
    found = {
        "hold": phase in HOLDABLE,
        "release": phase == Phase.HELD.value,
        "requeue": phase in REQUEUABLE,
        "cancel": not is_over(phase),
    }
    return [verb for verb, applies in found.items() if applies]


def this_user() -> str:
    """The user of this process."""
    try:
        return as_user(getpass.getuser())
    except (KeyError, OSError):  # a uid without a name, as in some containers
        return str(os.getuid())


def _with_places(snapshots: SnapshotCache, submissions: Sequence[Submission]) -> list[Submission]:
    """The submissions; a note says if no known offer is what a manifest requires of its place."""
    if not any(item.job.offer_rules.requires for item in submissions):
        return list(submissions)
    with snapshots.current(waiting=False) as core:
        fleet = core.state.fleet
        whys = {
            item.job.id: fleet.price(item.job, fleet.offers.values())
            for item in submissions
            if item.job.offer_rules.requires and item.job.cloud is CloudChoice.AUTO and fleet.offers
        }
    stay = {job_id: why for job_id, why in whys.items() if isinstance(why, str)}
    return [
        replace(item, notes=(*item.notes, f"stays on the cluster: {stay[item.job.id]}"))
        if item.job.id in stay
        else item
        for item in submissions
    ]


def _refuse_barred(snapshots: SnapshotCache, submissions: Sequence[Submission]) -> None:
    """Refuse jobs whose rules exclude every offer that would hold them, as far as the offers are known."""
    asking = [s.job for s in submissions if s.job.offer_rules.asks]
    if not asking:
        return
    with snapshots.current(waiting=False) as core:
        barred = [(job, core.state.fleet.barred(job)) for job in asking if job.cloud is not CloudChoice.NEVER]
    problems = [
        f"job {job.name}: {why}: change that annotation, or set starburst.io/cloud: never"
        for job, why in barred
        if why
    ]
    if problems:
        raise UserError("\n".join(problems))
