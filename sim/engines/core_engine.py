"""Reference engine: a trace run event by event through the core; all faster engines are tested against it.

The trace and the outcomes are in hours, the core in seconds of its clock (`CLOCK_UNIT_S`).
"""

from __future__ import annotations

from math import isnan

import numpy as np

from sim.engines.artifact_backfill import ArtifactBackfill
from sim.outcomes import Outcomes
from sim.spec import CLOCK_UNIT_S, HOUR_S, Spec
from sim.trace import Floats, Trace
from sim.world import SimJob, World
from starburst.core.model.jobs import JobRecord
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Site
from starburst.domain.money import Money
from starburst.domain.resources import Resources

#: The only offer of the simulated cloud holds any job; bills come from the trace's cost column.
CLOUD = Offer("cloud", Resources.of(10**9, 10**9, 10**9), Money.of(1))

#: Kinds of decisions after which a job has ended.
ENDS = frozenset({"succeeded", "failed", "cancelled"})


def simulate(trace: Trace, estimate_h: Floats, spec: Spec) -> Outcomes:
    """Run all jobs of the trace to their end.

    `estimate_h` are the run times that the scheduler assumes, NaN where it has no estimate.
    """
    settings = spec.settings(CLOCK_UNIT_S)
    hour = settings.clock_s(HOUR_S)
    scheduler = Scheduler(settings)
    if spec.backfill and spec.backfill_rule == "artifact":
        scheduler.state.walk = ArtifactBackfill(scheduler.state)
    book = _OutcomeLog(trace, spec, hour)
    world = World(
        scheduler,
        spec.cluster(),
        [CLOUD],
        boot_s={CLOUD.name: settings.clock_s(spec.cloud_delay_s)},
        cloud_extra_s=spec.data_gravity_h * hour,
        on_step=book.on_step,
    )
    guesses = _seconds(trace, estimate_h, hour)
    waits = _seconds(trace, trace.max_wait_h, hour)
    limits = _seconds(trace, trace.estimate_h if spec.runtime_estimates == "limits" else None, hour)
    priorities = [0] * len(trace) if trace.priority is None else trace.priority.tolist()
    world.submit(
        SimJob(
            Job(
                str(i),
                trace.ids[i],
                trace.tasks(i, spec.gpus_per_node),
                queue="" if trace.queues is None else trace.queues[i],
                runtime_estimate_s=guesses[i],
                spread=trace.spread(i),
                max_wait_s=waits[i],
                priority=priorities[i],
                time_limit_s=limits[i],
                user="" if trace.users is None else trace.users[i],
            ),
            float(trace.arrival_h[i]) * hour,
            float(trace.duration_h[i]) * hour,
        )
        for i in range(len(trace))
    )
    world.run()
    return book.outcomes


def _seconds(trace: Trace, column_h: Floats | None, hour: float) -> list[float | None]:
    """A column in seconds of the scheduler's clock; None where a job has no value."""
    if column_h is None:
        return [None] * len(trace)
    return [None if isnan(value_h) else value_h * hour for value_h in column_h.tolist()]


class _OutcomeLog:
    """Records the end of each job, and the cloud stay that preceded a return."""

    def __init__(self, trace: Trace, spec: Spec, hour: float) -> None:
        """`hour`: seconds of the scheduler's clock in an hour."""
        n = len(trace)
        self._hour = hour
        self._trace = trace
        self._spec = spec
        self.outcomes = Outcomes(
            start_h=np.full(n, np.nan),
            end_h=np.full(n, np.nan),
            wait_h=np.zeros(n),
            in_cloud=np.zeros(n, bool),
            charged=np.zeros(n),
            returned=np.zeros(n, bool),
            passed=np.zeros(n, bool),
            node=np.full(n, -1),
        )

    def on_step(self, now: float, changes: Changes) -> None:
        """Evaluate the decisions of one step."""
        for decision in changes.decisions:
            kind, subject = decision.kind, decision.subject
            if kind in ENDS:
                self._ended(int(subject), changes.jobs[subject])
            elif kind == "returning":
                stay_h = float(str(decision.numbers["elapsed_s"])) / self._hour
                self.outcomes.stays[int(subject)] = decision.at / self._hour - stay_h, stay_h

    def _ended(self, index: int, record: JobRecord) -> None:
        out, trace = self.outcomes, self._trace
        assert record.started_at is not None
        assert record.ended_at is not None
        out.start_h[index] = start_h = record.started_at / self._hour
        out.end_h[index] = record.ended_at / self._hour
        out.returned[index] = record.returned
        out.passed[index] = record.passed
        arrived = float(trace.arrival_h[index])
        left_h, stay_h = out.stays.get(index, (arrived, 0.0))
        waited_h = left_h - arrived
        out.wait_h[index] = waited_h + start_h - (arrived + waited_h + stay_h)
        rate = trace.cost[index] / trace.duration_h[index] if trace.duration_h[index] else 0.0
        start_up_h = self._spec.cloud_delay_s / HOUR_S
        billed_h = stay_h + start_up_h if index in out.stays else 0.0
        if record.site is Site.CLOUD and self._spec.oracle:
            out.start_h[index] = arrived
            out.end_h[index] -= out.wait_h[index]
            out.wait_h[index] = 0.0
        if record.site is Site.CLOUD:
            out.in_cloud[index] = True
            delays_h = self._spec.data_gravity_h + start_up_h
            out.charged[index] = trace.cost[index] + rate * (billed_h + delays_h)
        else:
            out.charged[index] = rate * billed_h
            out.node[index] = int(record.slots[0].where)
