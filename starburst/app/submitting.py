"""Submitting and cancelling, whoever asks: all of it or, if anything in it is bad, nothing."""

from __future__ import annotations

import getpass
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from starburst.app.build import carries, live_core, stored_config
from starburst.app.config import Config
from starburst.app.errors import UserError
from starburst.app.following import resolved
from starburst.app.sources import Source
from starburst.app.times import local_clock
from starburst.app.views import Keys, explanation_keys
from starburst.core.explain import foretell
from starburst.core.holding import HOLDABLE as PHASES
from starburst.domain.cloud import ANY_OFFER
from starburst.domain.job import CloudChoice, Submission, is_over
from starburst.store.pages import Queues
from starburst.store.queries import SUBMITTED, JobRow, ended
from starburst.store.store import Store
from translator.errors import ManifestErrors
from translator.field import did_you_mean
from translator.manifest import read_manifests

#: Phases of jobs that can be held.
HOLDABLE = (SUBMITTED, *(phase.value for phase in PHASES))
#: Letters and digits of id suffixes; none that is easily taken for another, no vowels, so no words.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def read_sources(
    store: Store,
    sources: Iterable[Source],
    user: str,
    suffix: Callable[[], str] | None = None,
    queues: Queues = None,
) -> list[Submission]:
    """Everything in the texts; an image alone is not enough unless a Kubernetes runs it.

    `suffix` makes the ends of ids; None draws them. What jobs may come after is in these `queues`, or in any.

    Raises:
        UserError: something could not be read or is bad; every problem of every text is a line.
    """
    config = stored_config(store)
    native = config.cluster.kind == "kubernetes"
    submissions: list[Submission] = []
    problems: list[str] = []
    for source in sources:
        if source.problem:
            problems.append(source.problem)
            continue
        try:
            found = read_manifests(
                source.text,
                source.name,
                suffix=suffix or _suffix,
                user=user,
                native=native,
                carries=carries(config),
            )
        except ManifestErrors as error:
            problems += str(error).splitlines()
            continue
        if not found:
            problems.append(f"{source.name}: there is no Job or Pod in it; write at least one")
        problems += [
            f"{source.name}, job {s.job.name}: containers[0].command: is missing; the embedded cluster runs "
            "commands of this machine, not images: write the command out"
            for s in found
            if not native and not s.workload.command
        ]
        problems += _strange_queues(config, source.name, found)
        submissions += [_noted(item, config.policy.max_grace) for item in found]
    if problems:
        raise UserError("\n".join(problems))
    return resolved(store, submissions, queues)


def _strange_queues(config: Config, source: str, found: Iterable[Submission]) -> list[str]:
    """Jobs for queues that there are not, if the config says which there are."""
    known = [queue.name for queue in config.queues]
    return [
        f"{source}, job {item.job.name}: starburst.io/queue: {item.job.queue!r}: "
        + did_you_mean(item.job.queue, known, f"there is no such queue; the queues are {', '.join(known)}")
        for item in found
        if known and item.job.queue not in known
    ]


def _noted(item: Submission, max_grace_s: float) -> Submission:
    """A grace that no stop will give is told to its user."""
    if item.job.grace_s <= max_grace_s:
        return item
    note = (
        f"terminationGracePeriodSeconds: {item.job.grace_s:g} s: a run that is told to stop has at most "
        f"{max_grace_s:g} s here (policy.max_grace)"
    )
    return replace(item, notes=(*item.notes, note))


def held(submissions: Iterable[Submission]) -> list[Submission]:
    """The same, to be held until they are released."""
    return [replace(item, job=replace(item.job, hold=True)) for item in submissions]


def submit(store: Store, submissions: Sequence[Submission]) -> list[Keys]:
    """Hand in jobs, all or none; their ids and what of their manifests was not kept.

    Raises:
        UserError: one demands machines that nobody offers.
    """
    _refuse_barred(store, submissions)
    store.submit(submissions, time.time())
    return [{"id": s.job.id, "name": s.job.name, "notes": list(s.notes)} for s in submissions]


def dry_run(store: Store, submissions: Sequence[Submission]) -> list[Keys]:
    """What the live core says would become of jobs; nothing is handed in."""
    core = live_core(store)
    jobs = [item.job for item in submissions]
    others = {name for job in jobs for name in (*job.after_ok, *job.after_any)}
    told = foretell(core, jobs, local_clock(core.now), ended(store, others))
    return [
        {"name": s.job.name, **explanation_keys(e), "notes": list(s.notes)}
        for s, e in zip(submissions, told, strict=True)
    ]


def cancel(store: Store, rows: Iterable[JobRow], *, now: bool = False) -> None:
    """Ask for those that are not over yet to be cancelled; `now`, which is for admins: without a grace."""
    store.cancel([row.id for row in rows if not is_over(row.phase)], time.time(), now=now)


def hold(store: Store, rows: Iterable[JobRow]) -> None:
    """Ask for those that wait to be held."""
    store.hold([row.id for row in rows if row.phase in HOLDABLE], time.time())


def release(store: Store, rows: Iterable[JobRow]) -> None:
    """Ask for those that are held to be released; one that nobody holds stays as it is."""
    store.release([row.id for row in rows if not is_over(row.phase)], time.time())


def this_user() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in some containers
        return str(os.getuid())


def _refuse_barred(store: Store, submissions: Sequence[Submission]) -> None:
    """Refuse jobs whose user demands machines that nobody offers, as far as the offers are known."""
    asking = [s.job for s in submissions if s.job.offer_rules != ANY_OFFER]
    if not asking:
        return
    fleet = live_core(store).fleet
    barred = [(job, fleet.barred(job)) for job in asking if job.cloud is not CloudChoice.NEVER]
    problems = [
        f"job {job.name}: {why}: change that annotation, or set starburst.io/cloud: never"
        for job, why in barred
        if why
    ]
    if problems:
        raise UserError("\n".join(problems))


def _suffix() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(5))
