"""All that the scheduler knows, and the few ways in which its parts may write to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heappush
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
from starburst.core.parts.feasibility import Prospects
from starburst.core.parts.fleet import Fleet, InstanceRecord
from starburst.core.parts.passes import EasyBackfill, InOrder, OutOfOrder, Walk
from starburst.core.parts.queue import Passed, ShapeQueue
from starburst.domain.job import CloudChoice, Job, Phase, Site
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.fair import Queue, Tags
from starburst.policy.ordering import ORDERS
from starburst.policy.packing.plan import Packer
from starburst.policy.packing.registry import packer as packer_named
from starburst.policy.placement import PLACEMENTS
from starburst.policy.refusals import Refusals
from starburst.policy.returns import RETURNS
from starburst.policy.waiting import WAITING

#: Decisions that are kept for error messages.
RECENT = 256


class Changes:
    """What one step did: to be stored before any of its actions starts."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.actions: list[Action] = []
        self.jobs: dict[str, JobRecord] = {}
        self.instances: dict[str, InstanceRecord] = {}
        #: Events that had no effect since they are stale or impossible, and why.
        self.ignored: list[tuple[Event, str]] = []
        #: The nodes or the offers were reported anew.
        self.nodes = False
        self.offers = False
        #: All that is known of how fast jobs run beside each other, if that changed.
        self.speeds: Mapping[str, object] | None = None


class State:
    """State of one Starburst at `now`, scheduler seconds."""

    def __init__(self, settings: Settings, packer: Packer | None = None) -> None:
        self.settings = settings
        self.now = 0.0
        #: Name of the event at hand, for the log.
        self.event = ""
        self.jobs: dict[str, JobRecord] = {}
        self.queue = ShapeQueue()
        #: Jobs that join the queue at this instant.
        self.joining: list[JobRecord] = []
        self.capacity = Capacity((), PLACEMENTS[settings.placement])
        #: Who comes after whom: a job's id → ids of those that await it.
        self.dependants: dict[str, dict[str, None]] = {}
        #: Jobs that await nothing any more, or in vain, to be looked at.
        self.freed: deque[str] = deque()
        self.turns = Turns(self.freed)
        #: Capacity was freed or added since the last walk.
        self.grew = False
        #: None where waits are sat out, hopeless or not.
        self.prospects = Prospects(self.jobs) if settings.hopeless == "leave" else None
        self.fleet = Fleet(packer or packer_named(settings.packer), settings.max_rate)
        #: Jobs that leave and have no machine yet, and since when.
        self.departing: dict[str, float] = {}
        #: Running cloud jobs are not reconsidered before this.
        self.next_round = 0.0
        self.load = LoadEstimate(settings.prior_size, settings.prior_runtime_s, settings.prior_jobs)
        self.meter = Meter(settings)
        #: Of caps (core/steps/budget.py): what is kept of each; when their standings were last reckoned, and
        #: how they stood; and the jobs that one keeps from leaving, with what each would cost, micro-dollars.
        self.ledgers: dict[str, CapLedger] = {}
        self.books: tuple[float, Mapping[str, CapStatus]] | None = None
        self.capped: dict[str, float] = {}
        self.deadlines = Timers(self._deadline)
        self.looks = Timers(self._look)
        #: When blocked jobs may try again.
        self.pauses = Timers(self._pause)
        #: Starts that the cluster refused in a row.
        self.refusals = Refusals()
        #: Cloud runs past T_max that pay to come home as soon as there is room, oldest first.
        self.homesick: dict[str, None] = {}
        self.arrivals = 0
        self.decided = 0
        #: Events that were ignored since the start of the process.
        self.stale_events = 0
        self.changes = Changes()
        #: The latest decisions, for the story of a job in an error.
        self.recent: deque[Decision] = deque(maxlen=RECENT)
        #: Jobs that ended; forgotten once their bills are in.
        self.retired: list[str] = []
        #: Runs and machines found in the store at a restart that no site has confirmed yet.
        self.unconfirmed_runs: set[tuple[str, int]] = set()
        self.unconfirmed_instances: set[str] = set()
        #: Until the cluster has said what is so, nothing is placed and nobody leaves (see `Scheduler.rest`).
        self.resting = False
        #: Queued jobs without a deadline, by arrival; stale entries are dropped when they come up.
        self.patient: list[tuple[int, str]] = []
        self.passed = Passed()
        #: Of the order "fair".
        self.tags = Tags()
        self._choose_policies()

    def _choose_policies(self) -> None:
        """The policies that the settings name."""
        settings = self.settings
        self.order = ORDERS[settings.order]
        self.queues = {queue.name: queue for queue in settings.queues}
        self.waiting = WAITING[settings.waiting]
        self.returns = RETURNS[settings.returns]
        self.walk = self._make_walk()

    @property
    def factor(self) -> float:
        """The waiting policy's factor: as set, or as P gives it on the jobs seen, perhaps calibrated."""
        factor = self.settings.factor
        if factor is None:
            factor = self.waiting.factor(self.settings.budget_percent, self.load.load)
        if not self.meter.calibrated:
            return factor
        return factor * self.meter.multiplier(self.load.load)

    def queue_of(self, job: Job) -> Queue:
        """What is said of the job's queue."""
        return self.queues.get(job.queue) or Queue(job.queue)

    def size(self, job: Job) -> float:
        """r: the job's size in GPU equivalents."""
        return job.resources.gpu_equivalents(self.settings.cpus_per_gpu)

    def runtime_s(self, job: Job) -> float:
        """t: the user's estimate, or the mean of past jobs."""
        if job.runtime_estimate_s is not None:
            return job.runtime_estimate_s
        return self.load.load.mean_runtime_s

    def grace_s(self, job: Job) -> float:
        """How long a run of it has to end once it is told to."""
        return min(job.grace_s, self.settings.max_grace_s)

    def current(self, job_id: str, attempt: int) -> JobRecord | None:
        """The record, if this is its living attempt; a stale report finds none."""
        record = self.jobs.get(job_id)
        return record if record is not None and record.alive and record.attempt == attempt else None

    def decide(self, subject: str, kind: str, **numbers: object) -> Decision:
        """Add a row to the decision log."""
        self.decided += 1
        decision = Decision(self.decided, self.now, subject, self.event, kind, numbers)
        self.changes.decisions.append(decision)
        self.recent.append(decision)
        return decision

    def story(self, subject: str) -> str:
        """The latest decisions on a job or a machine, for the message of an error."""
        told = (f"{d.at:g} {d.kind}: {d.reason}" for d in self.recent if d.subject == subject)
        return "; ".join(told) or "none"

    def do(self, action: Action) -> None:
        """Ask the world for something."""
        self.changes.actions.append(action)

    def ignore(self, event: Event, why: str) -> None:
        """Count an event that is stale or impossible now, and leave it to the shell to log."""
        self.stale_events += 1
        self.changes.ignored.append((event, why))

    def touch(self, record: JobRecord) -> None:
        """The record changed and is to be stored."""
        self.books = None
        self.changes.jobs[record.id] = record

    def touch_instance(self, instance: InstanceRecord) -> None:
        """The instance changed and is to be stored."""
        self.books = None
        self.changes.instances[instance.id] = instance

    def pass_to(self, now: float) -> None:
        """Time goes on; whoever runs or waits meanwhile is on the meter."""
        if self.meter.calibrated:
            self.meter.advance(now - self.now, self.load.load)
        self.now = now

    def take(self, record: JobRecord, slots: tuple[Slot, ...]) -> None:
        """The job holds these slots of the cluster."""
        self.capacity.take(slots)
        self.walk.took(record, slots)
        if self.prospects is not None:
            self.prospects.hold(record.id, slots)

    def give(self, record: JobRecord, slots: tuple[Slot, ...]) -> None:
        """The job holds these slots of the cluster no longer."""
        self.capacity.give(slots)
        self.walk.gave(record, slots)
        self.grew = True
        if self.prospects is not None:
            self.prospects.drop(record.id, slots)

    def dequeue(self, record: JobRecord) -> None:
        """Take a job out of the queue."""
        self.queue.remove(record)
        self.walk.left(record)

    def set_deadline(self, record: JobRecord, deadline: float) -> None:
        """The job leaves for the cloud then."""
        record.deadline = deadline
        self.touch(record)
        self.attend(record)

    def attend(self, record: JobRecord) -> None:
        """Mind the deadline of a queued job, or that it has none."""
        if not isinf(record.deadline):
            self.deadlines.set(record.deadline, record)
        elif self.settings.max_passes and record.id in self.queue:
            heappush(self.patient, (record.seq, record.id))
            if len(self.patient) > 64 and len(self.patient) > 2 * len(self.queue):
                self.patient = sorted((r.seq, r.id) for r in self.queue if isinf(r.deadline))

    def unreserve(self, record: JobRecord) -> None:
        """Free the slots held for a job that does not come home after all."""
        if record.reserved:
            self.give(record, record.reserved)
            record.reserved = ()

    def _deadline(self, job_id: str) -> float | None:
        record = self.jobs.get(job_id)
        if record is None or record.phase is not Phase.QUEUED:
            return None
        # A job that is only about to join the queue gets its attempt there first.
        waits = job_id in self.queue or record.job.cloud is CloudChoice.ONLY
        return record.deadline if waits else None

    def _look(self, job_id: str) -> float | None:
        record = self.jobs.get(job_id)
        return record.look_at if record is not None and record.phase is Phase.RUNNING else None

    def _pause(self, job_id: str) -> float | None:
        record = self.jobs.get(job_id)
        return record.tries_at if record is not None and record.phase is Phase.BLOCKED else None

    def runs(self) -> Iterator[tuple[JobRecord, tuple[Slot, ...]]]:
        """Who holds which slots of the cluster."""
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
        return EasyBackfill(self.expected_ends, self.expected_end)

    def expected_end(self, record: JobRecord) -> float:
        """When the job's run ends, or would if it began now, by its own account or by estimates."""
        end = expected_end(record, self.now, self.runtime_s(record.job))
        return inf if end is None else end

    def expected_ends(self) -> list[tuple[float, tuple[Slot, ...]]]:
        """Expected end and slots of every run on the cluster."""
        alive = (record for record in self.jobs.values() if record.alive and record.site is Site.CLUSTER)
        return [(self.expected_end(record), record.slots) for record in alive]
