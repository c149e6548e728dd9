"""The scheduler's state, and the methods by which steps change several parts together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heappush
from itertools import chain
from math import inf, isinf

from starburst.core.model.actions import Action, Slot
from starburst.core.model.budget_values import CapLedger, CapStatus
from starburst.core.model.decisions import Decision
from starburst.core.model.estimates import expected_end
from starburst.core.model.events import Event
from starburst.core.model.jobs import JobRecord
from starburst.core.model.load import LoadEstimate
from starburst.core.model.settings import Settings
from starburst.core.model.timers import Timers
from starburst.core.parts.array_limits import Turns
from starburst.core.parts.budget_account import Meter
from starburst.core.parts.capacity import Capacity
from starburst.core.parts.discipline_pass import Disciplined
from starburst.core.parts.elastic import ElasticLosses
from starburst.core.parts.feasibility import Prospects
from starburst.core.parts.fleet import Fleet
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.parts.passes import EasyBackfill, InOrder, OutOfOrder, Walk
from starburst.core.parts.queue import Passed, ShapeQueue
from starburst.core.parts.run_times import RunTimes
from starburst.core.parts.wait_forecast import WaitForecast
from starburst.domain.job import ALIVE, CloudChoice, Job, Phase, Site
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.estimate_accuracy import UserAccuracy
from starburst.policy.fair import Queue, Tags
from starburst.policy.ordering import ORDERS
from starburst.policy.packing.plan import Packer
from starburst.policy.packing.registry import packer as packer_named
from starburst.policy.placement import PLACEMENTS
from starburst.policy.refusals import Refusals
from starburst.policy.returns import RETURNS
from starburst.policy.waiting import WAITING, Ask

#: Number of steps whose decisions are kept for error messages.
RECENT = 256


class Changes:
    """Changes and actions of one step.

    They are committed in one transaction before any action is carried out. After a crash the pending actions
    are read from the store and carried out again, which their idempotency keys make safe.
    """

    __slots__ = (
        "accuracies",
        "actions",
        "decisions",
        "ignored",
        "instances",
        "jobs",
        "nodes",
        "offers",
        "speeds",
    )

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.actions: list[Action] = []
        self.jobs: dict[str, JobRecord] = {}
        self.instances: dict[str, InstanceRecord] = {}
        #: Ignored events, which were stale or impossible, and the reasons.
        self.ignored: list[tuple[Event, str]] = []
        #: Whether the nodes or the offers were reported anew.
        self.nodes = False
        self.offers = False
        #: Snapshot of the learnt throughputs, if they changed.
        self.speeds: Mapping[str, object] | None = None
        #: What the estimates of these users are worth now.
        self.accuracies: dict[str, UserAccuracy] = {}


class State:
    """State of one Starburst at `now`, scheduler seconds."""

    def __init__(self, settings: Settings, packer: Packer | None = None) -> None:
        self.settings = settings
        self.now = 0.0
        #: Name of the present event, for the decision log.
        self.event = ""
        self.jobs: dict[str, JobRecord] = {}
        self.queue = ShapeQueue()
        #: Jobs that join the queue at the present instant.
        self.joining: list[JobRecord] = []
        self.elastic = ElasticLosses()
        self.capacity = Capacity((), PLACEMENTS[settings.placement])
        #: Prerequisites: a job's id → ids of the jobs that await its end.
        self.dependants: dict[str, dict[str, None]] = {}
        #: Ids of jobs to check for admission or, if a prerequisite failed, for cancellation.
        self.freed: deque[str] = deque()
        self.turns = Turns(self.freed)
        #: Whether capacity was freed or added since the last pass.
        self.grew = False
        #: Feasibility tests; None if hopeless jobs wait to their deadline.
        self.prospects = Prospects(self.jobs) if settings.tests_feasibility else None
        self.fleet = Fleet(packer or packer_named(settings.packer), settings.max_rate)
        #: Leaving jobs without an instance, and when each began to leave.
        self.departing: dict[str, float] = {}
        #: Earliest time of the next consolidation.
        self.next_round = 0.0
        self.load = LoadEstimate(settings.prior_size, settings.prior_runtime_s, settings.prior_jobs)
        self.run_times = RunTimes(self.load)
        self.meter = Meter(settings, self.load)
        #: Caps (core/steps/budget.py): the stored ledgers; the cached statuses with their time; and the jobs
        #: that a cap keeps queued, with the expected cost of each, micro-dollars.
        self.ledgers: dict[str, CapLedger] = {}
        self.books: tuple[float, Mapping[str, CapStatus]] | None = None
        self.capped: dict[str, float] = {}
        self.deadlines = Timers(self._deadline)
        self.looks = Timers(self._look)
        #: Ends of the pauses of blocked jobs.
        self.pauses = Timers(self._pause)
        self.refusals = Refusals()
        #: Cloud runs past T_max whose return pays or is untested; they wait for slots, the oldest first.
        self.homesick: dict[str, None] = {}
        self.arrivals = 0
        self.decided = 0
        #: Number of events ignored since the start of the process.
        self.stale_events = 0
        self.changes = Changes()
        #: Decisions of the latest steps, for error messages.
        self.recent: deque[list[Decision]] = deque(maxlen=RECENT)
        #: Ended jobs; their records are removed once their bills are final.
        self.retired: list[str] = []
        #: Stored runs and instances that no site has confirmed since a restart.
        self.unconfirmed_runs: set[tuple[str, int]] = set()
        self.unconfirmed_instances: set[str] = set()
        #: After a restart, until the cluster, and until the cloud has synced (`Scheduler.rest`).
        self.resting = self.cloud_unlisted = False
        #: Heap of queued jobs without a deadline, by arrival; stale entries are dropped at the top.
        self.patient: list[tuple[int, str]] = []
        self.passed = Passed()
        self.tags = Tags()
        self._choose_policies()

    def _choose_policies(self) -> None:
        """Look up the policies named by the settings."""
        settings = self.settings
        self.order = ORDERS[settings.order]
        self.queues = {queue.name: queue for queue in settings.queues}
        self.waiting = WAITING[settings.waiting]
        self.returns = RETURNS[settings.returns]
        self.walk = self._make_walk()
        #: Forecast of waits under a calibrated budget.
        self.forecast = WaitForecast(self.queue, self.capacity, passes=type(self.walk) is not InOrder)
        #: Q_max: jobs beyond it leave; infinity if there is none.
        self.queue_limit = inf if settings.queue_limit is None else settings.queue_limit

    @property
    def factor(self) -> float:
        """The waiting factor: as set, or derived from P and the load estimate; calibrated if so set."""
        factor = self.settings.factor
        if factor is None:
            factor = self.waiting.factor(self.settings.budget_percent, self.load.load)
        if not self.meter.calibrated:
            return factor
        return factor * self.meter.multiplier

    def policy_wait_s(self, record: JobRecord, factor: float | None = None) -> tuple[float, Ask, float]:
        """Seconds that the policy lets a job wait now, the attributes of the job, and its factor.

        `factor`: the present one, for who asks for many jobs.
        """
        job = record.job
        ask = Ask(self.size(job), job.resources.gpus, self.runtime_s(job), record.returned)
        own = self.queue_of(job).budget_percent
        factor = (self.factor if factor is None else factor) * self.meter.patience(ask.runtime_s)
        if own is not None:  # all factors are proportional to P
            factor *= own / self.settings.budget_percent
        longest_s = self.settings.longest_wait_s(ask.runtime_s)
        return min(self.waiting.wait_s(factor, ask), longest_s), ask, factor

    def queue_of(self, job: Job) -> Queue:
        """Settings of the job's queue; defaults if it has none."""
        return self.queues.get(job.queue) or Queue(job.queue)

    def size(self, job: Job) -> float:
        """r: the job's size in GPU equivalents."""
        return job.resources.gpu_equivalents(self.settings.cpus_per_gpu)

    def runtime_s(self, job: Job) -> float:
        """t: how long the job is taken to run."""
        return self.run_times.expected_s(job)

    def ran(self, job: Job, run_s: float) -> None:
        """Learn from the run time of a job that succeeded."""
        accuracy = self.run_times.succeeded(job, run_s)
        if accuracy is not None:
            self.changes.accuracies[job.user] = accuracy

    def given_runtime_s(self, record: JobRecord) -> float:
        """The run time that the job's wait was derived from: means learnt since then do not change it."""
        return self.runtime_s(record.job) if record.wait is None else record.wait.runtime_s

    def released_at(self, record: JobRecord) -> float:
        """Expected end of its run, or of one that begins now, by reports or by `given_runtime_s`."""
        return self._end(record, self.given_runtime_s(record))

    def grace_s(self, job: Job) -> float:
        """Grace of the job's runs, at most `max_grace_s`."""
        return min(job.grace_s, self.settings.max_grace_s)

    def current(self, job_id: str, attempt: int) -> JobRecord | None:
        """The record if `attempt` is its present, alive attempt; None for a stale one (fencing)."""
        record = self.jobs.get(job_id)
        if record is None or record.attempt != attempt or record.phase not in ALIVE:
            return None
        return record

    def decide(self, subject: str, kind: str, **numbers: object) -> Decision:
        """Add a row to the decision log."""
        self.decided += 1
        decision = Decision(self.decided, self.now, subject, self.event, kind, numbers)
        self.changes.decisions.append(decision)
        return decision

    def note_person(self, record: JobRecord, by: str, what: str) -> None:
        """Name in the log who asks for something, if that is not the job's user."""
        if by not in ("", record.job.user):
            self.decide(record.id, "asked", by=by, what=what)

    def story(self, subject: str) -> str:
        """The latest decisions on a job or a machine, for the message of an error."""
        decisions = chain(*self.recent, self.changes.decisions)
        rows = (f"{d.at:g} {d.kind}: {d.reason}" for d in decisions if d.subject == subject)
        return "; ".join(rows) or "none"

    def do(self, action: Action) -> None:
        """Request an action of a site."""
        self.changes.actions.append(action)

    def ignore(self, event: Event, why: str) -> None:
        """Count an event that is stale or impossible now, and record it for the daemon's log."""
        self.stale_events += 1
        self.changes.ignored.append((event, why))

    def touch(self, record: JobRecord) -> None:
        """Mark a record as changed, to be stored."""
        self.books = None
        self.changes.jobs[record.job.id] = record

    def touch_instance(self, instance: InstanceRecord) -> None:
        """Mark an instance as changed, to be stored."""
        self.books = None
        self.changes.instances[instance.id] = instance
        if self.fleet.shares:
            self.fleet.spare.changed(instance.id)

    def pass_to(self, now: float) -> None:
        """Advance the time, and charge the running and waiting jobs to a calibrated budget."""
        if self.meter.calibrated:
            self.meter.advance(now - self.now, now)
        self.now = now

    def take(self, record: JobRecord, slots: tuple[Slot, ...]) -> None:
        """Assign these slots of the cluster to the job."""
        self.capacity.take(slots)
        self.walk.took(record, slots)
        if slots and self.meter.calibrated:
            self.forecast.hold(record, slots, self.released_at(record))
        if self.prospects is not None:
            self.prospects.hold(record.id, slots)

    def give(self, record: JobRecord, slots: tuple[Slot, ...]) -> None:
        """Release these slots of the cluster."""
        self.capacity.give(slots)
        self.walk.gave(record, slots)
        self.forecast.drop(record.id)
        self.grew = True
        if self.prospects is not None:
            self.prospects.drop(record.id, slots)

    def dequeue(self, record: JobRecord) -> None:
        """Remove a job from the queue."""
        self.queue.remove(record)
        self.walk.left(record)

    def set_deadline(self, record: JobRecord, deadline: float) -> None:
        """Set the time at which a queued job leaves for the cloud."""
        record.deadline = deadline
        self.touch(record)
        self.attend(record)

    def attend(self, record: JobRecord) -> None:
        """Set the timer of a queued job's deadline, or list it for starvation protection if it has none."""
        if not isinf(record.deadline):
            self.deadlines.set(record.deadline, record)
        elif self.settings.max_passes and record.id in self.queue:
            heappush(self.patient, (record.seq, record.id))
            if len(self.patient) > 64 and len(self.patient) > 2 * len(self.queue):
                self.patient = sorted((r.seq, r.id) for r in self.queue if isinf(r.deadline))

    def unreserve(self, record: JobRecord) -> None:
        """Release the slots reserved for a return that does not take place."""
        if record.reserved:
            self.give(record, record.reserved)
            record.reserved = ()

    def _deadline(self, job_id: str) -> float | None:
        record = self.jobs.get(job_id)
        if record is None or record.phase is not Phase.QUEUED:
            return None
        # A job in `joining` is tried on the cluster before its deadline counts.
        waits = job_id in self.queue or record.job.cloud is CloudChoice.ONLY
        return record.deadline if waits else None

    def _look(self, job_id: str) -> float | None:
        record = self.jobs.get(job_id)
        return record.look_at if record is not None and record.phase is Phase.RUNNING else None

    def _pause(self, job_id: str) -> float | None:
        record = self.jobs.get(job_id)
        if record is None or not (record.phase is Phase.BLOCKED or self.keeps_machines(record)):
            return None
        return record.tries_at if record.phase is Phase.BLOCKED else record.not_before

    def keeps_machines(self, record: JobRecord) -> bool:
        """Whether it pauses on its machines after a failure; any other offloading job waits for machines."""
        return record.phase is Phase.OFFLOADING and bool(record.slots) and self.fleet.ready(record.slots)

    def reshape(self, record: JobRecord, job: Job) -> None:
        """Give a job that is not queued another shape, by which what it holds of the cluster counts now."""
        held = (*(record.slots if record.alive and record.site is Site.CLUSTER else ()), *record.reserved)
        self.walk.gave(record, held)
        record.job = job
        self.walk.took(record, held)

    def runs(self) -> Iterator[tuple[JobRecord, tuple[Slot, ...]]]:
        """Jobs that hold slots of the cluster, and the slots, reserved ones included."""
        for record in self.jobs.values():
            if record.alive and record.site is Site.CLUSTER:
                yield record, record.slots
            if record.reserved:
                yield record, record.reserved

    def _make_walk(self) -> Walk:
        if self.settings.order in DISCIPLINES:
            return Disciplined(DISCIPLINES[self.settings.order], self.runs)
        if self.settings.out_of_order:
            return OutOfOrder()
        if not self.settings.backfill:
            return InOrder()
        return EasyBackfill(self.expected_ends, self.latest_end)

    def expected_end(self, record: JobRecord) -> float:
        """Expected end of the job's run, or of one that begins now, by its reports or by estimates."""
        return self._end(record, self.runtime_s(record.job))

    def latest_end(self, record: JobRecord) -> float:
        """Expected end by the whole estimate, so that a job that passes the first one does not delay it."""
        return self._end(record, self.run_times.longest_s(record.job))

    def _end(self, record: JobRecord, runtime_s: float) -> float:
        end = expected_end(record, self.now, runtime_s)
        return inf if end is None else end

    def expected_ends(self) -> list[tuple[float, tuple[Slot, ...]]]:
        """Expected end and slots of every run on the cluster."""
        alive = (record for record in self.jobs.values() if record.alive and record.site is Site.CLUSTER)
        return [(self.expected_end(record), record.slots) for record in alive]
