"""No job is passed for ever (`docs/queues.md`), judged by what each step stores."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

from starburst.domain.job import Phase, Site
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.store import Step

#: So long after its nodes are free a job that goes first may wait: the scheduler may be down, seconds.
LATE_S = 1800.0


@dataclass(slots=True)
class Waiting:
    """A queued job without a deadline."""

    job_id: str
    seq: int
    needs: Resources


class Starvation:
    """Counts, for the oldest job that waits without end, the later ones that start before it.

    Once they are as many as may be, it starts when all that runs at that time has ended.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._oldest: Waiting | None = None
        self._passes = 0
        #: Jobs that hold room on the cluster now, and those of them that held it when the count was full.
        self._holders: set[str] = set()
        self._then: set[str] = set()
        #: Since when the oldest has no reason to wait, seconds.
        self._since = 0.0
        self._nodes: tuple[Node, ...] = ()
        self._most = 0
        #: Jobs that were passed as often as may be.
        self.protected: set[str] = set()

    def stepped(self, step: Step, most: int, now: float, away_until: float) -> str:
        """Take in a step; what is wrong, or "".

        `most`: `policy.max_passes`; `away_until`: until when no end of a run could be heard of, seconds.
        """
        before, started = self._oldest, self._take(step)
        if before is None or self._oldest is None or before.job_id != self._oldest.job_id:
            self._passes = 0
            return ""
        passes = self._passes + sum(seq > before.seq for seq in started)
        # What a config allows counts from when it is loaded: who runs then may go on.
        if self._passes < most <= passes or (tuple(step.nodes), most) != (self._nodes, self._most):
            self._nodes, self._most, self._then = tuple(step.nodes), most, set(self._holders)
        self._passes = passes
        self._then &= self._holders
        if not most or passes < most or self._then or now < away_until or not self._fits(before):
            self._since = now
        if most and passes >= most:
            self.protected.add(before.job_id)
        if now <= self._since + LATE_S:
            return ""
        self._since = now
        return f"{before.job_id}: {passes} later jobs have started before it, and {most} may"

    def _take(self, step: Step) -> list[int]:
        """The numbers of the jobs that this step starts on the cluster."""
        started = []
        for job_id, record in step.changes.jobs.items():
            self._waiting.pop(job_id, None)
            self._holders.discard(job_id)
            if record.phase is Phase.QUEUED and isinf(record.deadline):
                self._waiting[job_id] = Waiting(job_id, record.seq, record.job.resources)
            if record.alive and (record.site is Site.CLUSTER or record.reserved):
                self._holders.add(job_id)
            if record.phase is Phase.STARTING and record.site is Site.CLUSTER:
                started.append(record.seq)
        self._oldest = min(self._waiting.values(), key=lambda one: one.seq, default=None)
        return started

    def _fits(self, waiting: Waiting) -> bool:
        """Whether one node, if empty, holds all of it."""
        return any(node.schedulable and waiting.needs.fits(node.capacity) for node in self._nodes)
