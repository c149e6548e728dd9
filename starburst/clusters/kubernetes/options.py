"""Options of a Kubernetes cluster, from the config and from the wiring of the daemon."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from starburst.clusters.kubernetes.leadership import LeaseOptions
from starburst.clusters.kubernetes.runs.stalls import StartLimits
from starburst.domain.job import Submission
from starburst.runs.ports import Run
from translator.manifests.tenancy import Tenancy

#: Reads an object, given as JSON, as the job of this id: the job, or what is wrong with it. Never raises for
#: an object.
ObjectReader = Callable[[str, str], Awaitable[Submission | str]]
#: Variables by which a run finds where it can report its progress.
ReportVariables = Callable[[Run], Mapping[str, str]]


@dataclass(frozen=True)
class ClusterOptions:
    """Settings of one cluster."""

    #: Id of this scheduler's store: objects with another one belong to other schedulers.
    controller: str
    #: What submitted jobs may ask for, where they go, and the volume with their checkpoints.
    tenancy: Tenancy
    #: When a run that cannot use its place is taken back.
    limits: StartLimits
    #: Directory for the logs of runs that are ended early.
    logs: Path
    read: ObjectReader
    #: The queues there are; none is any that jobs name.
    queues: Collection[str] = ()
    reporting: ReportVariables = lambda _run: {}
    #: Epoch seconds.
    clock: Callable[[], float] = time.time
    #: Scheduler seconds at a past time in epoch seconds.
    scheduler_time: Callable[[float], float] = float
    #: None: no other Starburst is looked for.
    lease: LeaseOptions | None = None
