"""Parses manifests into submissions. A pure function of its inputs, so that a worker process can run it."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from starburst.app.reading.sources import ManifestText
from starburst.domain.array import jobs_in
from starburst.domain.job import CloudChoice, Submission
from starburst.store import codec
from translator.errors import ManifestErrors
from translator.field import did_you_mean
from translator.intake.rules import EMBEDDED, IntakeRules
from translator.intake.texts import read_firsts
from translator.manifests.live_object import NATIVE, read_object

#: Characters of id suffixes: no look-alikes, and no vowels, so no words.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
#: Lengths of random and of derived suffixes; derived ones are longer to avoid collisions of seeds.
DRAWN, DERIVED = 5, 10
#: Bytes in the store per submission.
MOST_BYTES = 64 * 1024 * 1024
#: Reported problems per submission.
MOST_PROBLEMS = 100


#: The owner of an adopted object: its annotation, or its namespace.
UserFrom = Literal["annotation", "namespace"]


@dataclass(frozen=True, slots=True)
class ManifestTexts:
    """Manifests with the context that parsing needs."""

    sources: tuple[ManifestText, ...]
    rules: IntakeRules = EMBEDDED
    #: Known queues; None: any name is allowed.
    queues: tuple[str, ...] | None = None
    #: 0 is no limit.
    most_tasks: int = 0
    #: Seed of id suffixes, for reproducible ids; None draws random ones.
    seed: str | None = None


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A cluster object as JSON, to be adopted under a job id."""

    body: str
    job_id: str
    rules: IntakeRules = NATIVE
    user_from: UserFrom = "annotation"


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """The submissions, each array as a whole, or one line per problem."""

    submissions: tuple[Submission, ...] = ()
    problems: tuple[str, ...] = ()
    #: The place of each job, for errors.
    places: tuple[str, ...] = ()


@dataclass(slots=True)
class _Load:
    """Totals of the jobs parsed so far."""

    most_tasks: int
    tasks: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, item: Submission) -> None:
        self.tasks += jobs_in(item) * len(item.job.tasks)
        self.size += len(codec.encode(item))

    def told(self) -> list[str]:
        """The limits that the totals exceed."""
        told = []
        if self.most_tasks and self.tasks > self.most_tasks:
            most = f"limits.tasks_per_submission is {self.most_tasks}"
            told.append(f"these jobs have {self.tasks} tasks, and {most}; submit them in parts")
        if self.size > MOST_BYTES:
            told.append(
                f"these jobs take {self.size} bytes, more than {MOST_BYTES}; submit them in parts, or give "
                "them their data in files"
            )
        return told


def read(what: ManifestTexts | FoundObject) -> ReadAnswer:
    """Parse everything; if there are problems, only these are returned."""
    return _read_texts(what) if isinstance(what, ManifestTexts) else _read_found(what)


def too_urgent(most: int, answer: ReadAnswer) -> list[str]:
    """Problems of jobs whose priority exceeds the limit for submitters without the admin role."""
    return [
        f"{place}: starburst.io/priority: {item.job.priority}: must be at most {most} for who is "
        "no admin (limits.priority)"
        for place, item in zip(answer.places, answer.submissions, strict=True)
        if item.job.priority > most
    ]


def _read_texts(texts: ManifestTexts) -> ReadAnswer:
    load, ends = _Load(texts.most_tasks), _ends(texts.seed)
    found: list[Submission] = []
    places: list[str] = []
    for source in texts.sources:
        if source.problem:
            load.problems.append(source.problem)
            continue
        read_here = _read_source(source, texts, lambda: next(ends), load)
        found += read_here
        places += [f"{source.name}, job {item.job.name}" for item in read_here]
        for item in read_here:
            load.add(item)
    problems = [*load.problems, *load.told()]
    if len(problems) > MOST_PROBLEMS:
        more = f"and {len(problems) - MOST_PROBLEMS} more problems"
        problems = [*problems[:MOST_PROBLEMS], more]
    return (
        ReadAnswer(problems=tuple(problems)) if problems else ReadAnswer(tuple(found), places=tuple(places))
    )


def _read_source(
    source: ManifestText, texts: ManifestTexts, suffix: Callable[[], str], load: _Load
) -> list[Submission]:
    try:
        found = read_firsts(source.text, source.name, suffix=suffix, taking=texts.rules)
    except ManifestErrors as error:
        load.problems += map(str, error.errors)
        return []
    if not found:
        load.problems.append(f"{source.name}: there is no Job or Pod in it; write at least one")
    load.problems += [
        f"{source.name}, job {item.job.name}: containers[0].command: is missing; the embedded cluster runs "
        "commands of this machine, not images: write the command out"
        for item in found
        if not texts.rules.native and not item.workload.command
    ]
    load.problems += [
        f"{source.name}, job {item.job.name}: containers[0].image: is missing; a Kubernetes cluster runs "
        "images: name one, with submit --image for what is no manifest, or set starburst.io/cloud: only"
        for item in found
        if texts.rules.native and not item.workload.image and item.job.cloud is not CloudChoice.ONLY
    ]
    load.problems += _strange_queues(texts.queues, source.name, found)
    return found


def _strange_queues(known: tuple[str, ...] | None, source: str, found: list[Submission]) -> list[str]:
    """Problems of jobs that name unknown queues, if the config lists the queues."""
    if known is None:
        return []
    return [
        f"{source}, job {item.job.name}: starburst.io/queue: {item.job.queue!r}: "
        + did_you_mean(item.job.queue, known, f"there is no such queue; the queues are {', '.join(known)}")
        for item in found
        if item.job.queue not in known
    ]


def _read_found(found: FoundObject) -> ReadAnswer:
    try:
        obj = json.loads(found.body)
        namespace = str(obj["metadata"].get("namespace") or "") if found.user_from == "namespace" else None
        item = read_object(obj, job_id=found.job_id, user=namespace, rules=found.rules)
        return ReadAnswer((item,), places=(f"job {item.job.name}",))
    except ManifestErrors as errors:
        return ReadAnswer(
            problems=tuple(f"{error.field}: {error.mend}" for error in errors.errors[:MOST_PROBLEMS])
        )


def _ends(seed: str | None) -> Iterator[str]:
    number = 0
    while True:
        if seed is None:
            yield "".join(secrets.choice(ALPHABET) for _ in range(DRAWN))
        else:
            digest = hashlib.sha256(f"{number}/{seed}".encode()).digest()
            yield "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:DERIVED])
        number += 1
