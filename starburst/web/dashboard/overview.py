"""The data of the overview page, from one state of the store; every list has a bounded length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from starburst.app.jobs.caps_view import stored_standings
from starburst.app.packing_gap import PackingGap
from starburst.app.wiring.stored import stored_config
from starburst.core.model.actions import Slot
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.job import Phase
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.store import counters
from starburst.store import schema as t
from starburst.store.listings import dashboard_queries as board
from starburst.store.listings import queries
from starburst.store.listings.dashboard_queries import PlacedJob, QueuedJob
from starburst.store.listings.row_types import SUBMITTED, DecisionRow, JobRow
from starburst.store.store import Store
from starburst.web import aggregates
from starburst.web.aggregates import SpendingLimit, WaitBudget
from starburst.web.context import AppContext
from starburst.web.dashboard.baseline import BaselineCache, Comparison
from starburst.web.dashboard.caps import CapsPanel, caps_panel
from starburst.web.dashboard.history import DayHistory, HistoryCache, midnight
from starburst.web.packing_gap_cache import PackingGapCache

#: Lengths of the lists; the rest is counted.
WAITERS, NODES, MACHINES, DECISIONS, JOBS = 40, 48, 48, 40, 80
#: GPUs drawn per machine.
CELLS = 64
#: Colours that distinguish jobs; the style sheet defines as many.
COLOURS = 10
PHASES = (SUBMITTED, *(phase.value for phase in Phase))


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The reader's filter: words of a search, and a phase; "" is no filter."""

    text: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class JobShare:
    """GPUs of a node or machine that a job uses. `state`: runs, starts, stops, reserved or moving."""

    job: str
    colour: int
    gpus: int
    state: str


@dataclass(frozen=True, slots=True)
class NodeBox:
    """A node or machine with its GPUs and the jobs on them."""

    name: str
    gpus: int
    parts: tuple[JobShare, ...]
    #: A problem in words; "" is none.
    trouble: str = ""

    @property
    def used(self) -> int:
        """GPUs that are used by jobs or reserved for them."""
        return sum(part.gpus for part in self.parts)

    @property
    def cells(self) -> list[JobShare | None]:
        """One entry per GPU, at most CELLS; None is a free GPU."""
        taken: list[JobShare | None] = [part for part in self.parts for _ in range(part.gpus)]
        return [*taken, *[None] * (self.gpus - len(taken))][:CELLS]


@dataclass(frozen=True, slots=True)
class MachineRow:
    """A rented machine in the list."""

    box: NodeBox
    record: InstanceRecord
    cost: Money


@dataclass(frozen=True, slots=True)
class Spending:
    """Rate and limit in dollars per hour, dollars since midnight, and the comparisons with cheaper plans."""

    rate: Money
    limit: SpendingLimit | None
    today: Money
    comparison: Comparison | None
    gap: PackingGap | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The contents of the page."""

    now: float
    up: bool
    #: The resource that the scheduler waits for, as a sentence; "" is none.
    held_up: str
    #: Of several replicas the one that leads, and whether that is this one; "" is none, None is a single one.
    leader: str | None
    leads: bool
    speed: float
    asked: JobFilter
    #: Jobs by phase, and the number of those that should have left for the cloud by now.
    counts: Mapping[str, int]
    overdue: int
    waiters: Sequence[QueuedJob]
    nodes: Sequence[NodeBox]
    nodes_total: int
    machines: Sequence[MachineRow]
    machines_total: int
    unreachable: int
    gpus: Mapping[str, int]
    spending: Spending
    caps: CapsPanel
    budget: WaitBudget
    decisions: Sequence[DecisionRow]
    decided: int
    jobs: Sequence[JobRow]
    hits: int
    #: None until they have been computed for the first time.
    history: DayHistory | None
    #: Micro-dollars by job for machines that have not ended.
    owed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Computed:
    """What is computed beside the requests that show it."""

    baseline: BaselineCache
    gaps: PackingGapCache
    histories: HistoryCache

    @classmethod
    def of(cls, store: Store) -> Computed:
        """Of one store."""
        return cls(BaselineCache(store), PackingGapCache(store), HistoryCache(store))


def overview(app_context: AppContext, computed: Computed, asked: JobFilter) -> Overview:
    """The contents as of now."""
    store, now = app_context.store, app_context.now()
    config, pace, counts = stored_config(store), queries.pace(store), queries.summary(store).jobs
    comparison, settings = computed.baseline.ask(midnight(now), now), config.settings()
    gap, caps = computed.gaps.ask(settings.max_rate), caps_panel(stored_standings(store, settings, now), now)
    day = None if caps.day is None else caps.day.cap.limit.micro_usd / 1e6
    rivals = () if comparison is None else comparison.machines
    history = computed.histories.ask(now, day, config.policy.budget_percent / 100, rivals)
    decisions = queries.decisions(store, last=DECISIONS)[::-1]
    fresh = queries.jobs(store, phases=(SUBMITTED,), limit=board.MOST_HITS if asked.text else JOBS)[::-1]
    said = app_context.scheduler()
    with store.read() as conn:
        holders, nodes = board.placed_jobs(conn), board.nodes(conn)
        records, facts = queries.machines(conn), board.facts(conn)
        shown, hits = _search(conn, asked, fresh, counts)
        return Overview(
            now=now,
            up=said is not None,
            held_up="" if said is None else said.detail,
            leader=app_context.leader(),
            leads=app_context.leads(),
            speed=pace.speed,
            asked=asked,
            counts=counts,
            overdue=sum(aggregates.overdue(conn, config, now).values()),
            waiters=_waiters(conn),
            nodes=node_boxes(nodes, holders),
            nodes_total=len(nodes),
            machines=machine_boxes(records, holders, now),
            machines_total=len(records),
            unreachable=sum(record.unreachable_since is not None for record in records),
            gpus=aggregates.gpus(nodes, holders),
            spending=Spending(
                aggregates.rate(records),
                aggregates.limit(config),
                _today(conn, records, now),
                comparison,
                gap,
            ),
            caps=caps,
            budget=aggregates.budget(config, facts, counters.tallies(conn)),
            decisions=decisions,
            decided=facts.decided,
            jobs=shown,
            hits=hits,
            history=history,
            owed=owed_by_job(records, now),
        )


def _waiters(conn: Connection) -> list[QueuedJob]:
    """Who leaves next; where the cloud has no offers no job leaves, and so none has a deadline."""
    waiters = board.queued_jobs(conn, WAITERS)
    if conn.scalar(select(t.facts.c.body).where(t.facts.c.key == "offers")) != "[]":
        return waiters
    return [replace(waiter, row=replace(waiter.row, deadline=None)) for waiter in waiters]


def _search(
    conn: Connection, asked: JobFilter, fresh: Sequence[JobRow], counts: Mapping[str, int]
) -> tuple[list[JobRow], int]:
    """The newest matching jobs, those not yet taken up by the scheduler first, and the number of matches.

    `fresh` are these, the newest first: all that are counted if there is a text to search for.
    """
    words = asked.text.lower().split()
    new = [row for row in fresh if all(_has(row, word) for word in words)]
    if asked.phase == SUBMITTED:
        rows, hits = new[:JOBS], len(new)
    else:
        old, hits = board.search(conn, asked.text, (asked.phase,) if asked.phase else (), JOBS)
        rows, hits = (old, hits) if asked.phase else ([*new, *old][:JOBS], hits + len(new))
    if not words:  # a search stops counting at a limit
        hits = counts.get(asked.phase, 0) if asked.phase else sum(counts.values())
    return rows, hits


def _has(row: JobRow, word: str) -> bool:
    return any(word in column.lower() for column in (row.id, row.name, row.user, row.queue))


def _today(conn: Connection, machines: Sequence[InstanceRecord], now: float) -> Money:
    since = midnight(now)
    return Money(board.ended_since(conn, since) + board.running_since(machines, since, now))


def owed_by_job(machines: Sequence[InstanceRecord], now: float) -> Counter[str]:
    """Micro-dollars that jobs owe for machines that have not ended, up to now."""
    owed = Counter[str]()
    for machine in machines:
        owed.update(machine.shares(now))
    return owed


def node_boxes(nodes: Sequence[Node], holders: Sequence[PlacedJob]) -> list[NodeBox]:
    """The first nodes; of more than NODES those with the most used GPUs."""
    names = {node.name for node in nodes}
    parts = _parts(holders, names)
    boxes = [
        NodeBox(
            n.name, n.capacity.gpus, parts.get(n.name, ()), "" if n.schedulable else "cordoned, not ready"
        )
        for n in nodes
    ]
    if len(boxes) > NODES:
        boxes.sort(key=lambda box: (-box.used, box.name))
    return boxes[:NODES]


def machine_boxes(
    records: Sequence[InstanceRecord], holders: Sequence[PlacedJob], now: float
) -> list[MachineRow]:
    """The first machines; unreachable ones come first."""
    first = sorted(records, key=lambda record: record.unreachable_since is None)[:MACHINES]
    parts = _parts(holders, {record.id for record in first})
    return [
        MachineRow(
            NodeBox(
                record.id,
                record.offer.capacity.gpus,
                parts.get(record.id, ()),
                "" if record.unreachable_since is None else "does not answer",
            ),
            record,
            record.cost(now),
        )
        for record in first
    ]


def _parts(holders: Iterable[PlacedJob], names: set[str]) -> dict[str, tuple[JobShare, ...]]:
    """The jobs on these nodes or machines."""
    found: dict[str, list[JobShare]] = {}
    for holder in holders:
        state = {"running": "runs", "stopping": "stops"}.get(holder.phase, "starts")
        for slots, its in ((holder.slots, state), (holder.reserved, "reserved"), (holder.moving, "moving")):
            for name, gpus in _gpus(slots, names).items():
                parts = found.setdefault(name, [])
                parts.append(JobShare(holder.id, _colour(holder.seq, parts), gpus, its))
    return {name: tuple(parts) for name, parts in found.items()}


def _colour(seq: int, beside: Sequence[JobShare]) -> int:
    """The colour of a job; if a neighbour has the same, the next free one."""
    taken = {part.colour for part in beside}
    own = [(seq + step) % COLOURS for step in range(COLOURS)]
    return next((colour for colour in own if colour not in taken), own[0])


def _gpus(slots: Sequence[Slot], names: set[str]) -> Counter[str]:
    counted = Counter[str]()
    for slot in slots:
        if slot.where in names:
            counted[slot.where] += slot.resources.gpus
    return counted
