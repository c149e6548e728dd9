"""The pass of an order that is a discipline (BF-J/S, VQS, VQS-BF), which chooses jobs and their nodes.

A discipline works on equal servers and on jobs with one scalar size. Nodes of equal GPUs and CPUs form a pool
with its own discipline. The size of a job is its largest share of the pool's node (Psychas and Ghaderi,
section VIII); the room on a node is its smallest free share. A job that fits by these two numbers fits in
every resource. A job waits in every pool that could hold it. Unschedulable nodes are in no pool.

Gangs, jobs with node constraints, and jobs without GPUs on GPU nodes have no such size. They are tried before
the others, out of order: gangs are the largest jobs, and the rest have fewer nodes to choose from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import lcm

from starburst.core.model.actions import Slot
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.capacity import Capacity, amount
from starburst.core.parts.passes import Configurations, OutOfOrder, Start, Walk
from starburst.core.parts.queue import ShapeQueue
from starburst.domain.job import Job, Shape
from starburst.domain.node import Node
from starburst.policy.disciplines.discipline import LiveDiscipline
from starburst.policy.disciplines.registry import LiveOrder
from starburst.policy.disciplines.scores import largest_share
from starburst.policy.placement import Amount, first_fit

#: Yields every job on the cluster with its slots.
Runs = Callable[[], Iterable[tuple[JobRecord, Iterable[Slot]]]]


@dataclass(frozen=True, slots=True)
class NodePool:
    """Equal nodes and their discipline; a server's number is its index in `nodes`."""

    nodes: tuple[Node, ...]
    #: A representative empty node, with the smallest memory of the pool.
    like: Node
    #: Size of a node in units that make all shares integers.
    units: int
    discipline: LiveDiscipline

    def size(self, job: Job) -> int:
        """The job's largest share of a node, in units; 0 if the discipline does not handle the job."""
        plain = len(job.tasks) == 1 and job.shape == Job("", "", job.tasks).shape and not job.tasks[0].others
        if not plain or (self.like.capacity.gpus and not job.tasks[0].gpus):
            return 0
        if Capacity((self.like,), first_fit).place(job) is None:
            return 0
        return largest_share(amount(job.tasks[0]), amount(self.like.capacity), self.units)

    def room(self, free: Amount) -> int:
        """The smallest free share of a node, in units."""
        there = amount(self.like.capacity)
        shares = [part * self.units // whole for part, whole in zip(free, there, strict=True) if whole]
        return max(0, min(self.units, *shares)) if shares else 0


class Disciplined(Walk):
    """Three passes: jobs without a size, the discipline's choices, then jobs that fit in spite of their size.

    The third pass is left out for disciplines that keep room free on purpose (`keeps_room`).
    """

    def __init__(self, order: LiveOrder, runs: Runs) -> None:
        self._order = order
        self._runs = runs
        self._nodes: list[Node] = []
        self._forget()

    def _forget(self) -> None:
        self._pools: list[NodePool] = []
        #: Node → index of its pool, and its server number there.
        self._servers: dict[str, tuple[int, int]] = {}
        #: Shape → its size in every pool.
        self._sizes: dict[Shape, tuple[int, ...]] = {}
        #: Disciplines identify jobs by arrival number.
        self._waiting: dict[int, str] = {}
        self._running: dict[int, tuple[int, int]] = {}
        #: Nodes whose room has changed since it was last passed to the disciplines.
        self._stale: set[str] = set()
        self._sizeless = OutOfOrder()
        self._misfits = OutOfOrder()

    def joined(self, record: JobRecord) -> None:
        """A job joined the queue."""
        sizes = self._sizes_of(record.job)
        if not any(sizes):
            self._sizeless.joined(record)
            return
        self._waiting[record.seq] = record.id
        for pool, size in zip(self._pools, sizes, strict=True):
            if size:
                pool.discipline.arrive(record.seq, size)
        if not self._order.keeps_room:
            self._misfits.joined(record)

    def left(self, record: JobRecord) -> None:
        """A job left the queue, for any reason."""
        if self._waiting.pop(record.seq, None) is not None:
            self._withdraw(record)

    def took(self, record: JobRecord, slots: Iterable[Slot]) -> None:
        """A job holds these slots of the cluster now."""
        for slot in slots:
            self._stale.add(slot.where)
            number, server = self._servers.get(slot.where, (-1, -1))
            size = self._sizes_of(record.job)[number] if number >= 0 else 0
            if size and record.seq not in self._running:
                self._running[record.seq] = number, server
                self._pools[number].discipline.hold(record.seq, size, server)

    def gave(self, record: JobRecord, slots: Iterable[Slot]) -> None:
        """A job has released these slots of the cluster."""
        self._stale.update(slot.where for slot in slots)
        if record.seq in self._running:
            number, server = self._running.pop(record.seq)
            self._pools[number].discipline.leave(record.seq, server)

    def grew(self, queue: ShapeQueue) -> None:
        """Capacity was freed or added: every shape is tried again."""
        sized: list[Shape] = []
        sizeless: list[Shape] = []
        for shape in queue.shapes():
            (sized if any(self._sizes.get(shape, ())) else sizeless).append(shape)
        self._sizeless.retry(sizeless)
        if not self._order.keeps_room:
            self._misfits.retry(sized)

    def rebuild(self, queue: ShapeQueue, capacity: Capacity, known: Configurations) -> None:
        """Rebuild the pools after a change of the nodes or a restart; `known`: the stored configurations."""
        nodes = [node for node in capacity.nodes if node.schedulable]
        if nodes == self._nodes:
            return
        self._forget()
        self._nodes = nodes
        alike: dict[Node, list[Node]] = {}
        for node in nodes:
            kind = replace(node, name="", labels=())
            alike.setdefault(
                replace(kind, capacity=replace(kind.capacity, memory_mib=0, others=())), []
            ).append(node)
        self._pools = [self._pool(nodes, known) for nodes in alike.values()]
        self._servers = {
            node.name: (number, server)
            for number, pool in enumerate(self._pools)
            for server, node in enumerate(pool.nodes)
        }
        self._stale.update(self._servers)
        for record, slots in self._runs():
            self.took(record, slots)
        self._pass_room(capacity)
        for record in queue:
            self.joined(record)

    def configurations(self) -> Configurations:
        """The configurations of nodes, which a restart cannot derive from queue, runs and nodes."""
        return {
            pool.nodes[server].name: chosen
            for pool in self._pools
            for server, chosen in pool.discipline.kept().items()
        }

    def walk(self, queue: ShapeQueue, capacity: Capacity) -> Iterator[Start]:
        """Jobs to start, in order."""
        yield from self._sizeless.walk(queue, capacity)
        behind = _Behind(queue, capacity)
        found = True
        while found:
            found = False
            self._pass_room(capacity)
            for number, pool in enumerate(self._pools):
                for seq, server in pool.discipline.start():
                    record = queue.get(self._waiting.pop(seq))
                    self._running[seq] = number, server
                    self._withdraw(record, but=number)
                    slots = (Slot(0, pool.nodes[server].name, record.job.tasks[0]),)
                    found = True
                    if capacity.holds(slots):
                        yield record, slots, behind.first(record)
                    else:
                        self._refuse(record)
        yield from self._misfits.walk(queue, capacity)

    def picture(self) -> tuple[set[str], dict[int, str]]:
        """Jobs waiting in the disciplines, and node per counted run; for checks only."""
        nodes = {seq: self._pools[number].nodes[at].name for seq, (number, at) in self._running.items()}
        return set(self._waiting.values()), nodes

    def _pool(self, nodes: list[Node], known: Configurations) -> NodePool:
        least = min(node.capacity.memory_mib for node in nodes)
        capacity = replace(nodes[0].capacity, memory_mib=least, others=())
        like = replace(nodes[0], labels=(), capacity=capacity)
        units = lcm(*(part for part in amount(capacity) if part))
        discipline = self._order.make(len(nodes), units)
        for server, node in enumerate(nodes):
            if node.name in known:
                discipline.keep(server, known[node.name])
        return NodePool(tuple(nodes), like, units, discipline)

    def _sizes_of(self, job: Job) -> tuple[int, ...]:
        sizes = self._sizes.get(job.shape)
        if sizes is None:
            sizes = self._sizes[job.shape] = tuple(pool.size(job) for pool in self._pools)
        return sizes

    def _pass_room(self, capacity: Capacity) -> None:
        """Pass the room of changed nodes to the disciplines."""
        for name in self._stale:
            if name in self._servers:
                number, server = self._servers[name]
                pool = self._pools[number]
                pool.discipline.room(server, pool.room(amount(capacity.free(name))))
        self._stale.clear()

    def _withdraw(self, record: JobRecord, but: int = -1) -> None:
        """Withdraw the job from every pool except `but`, whose discipline has removed it already."""
        for number, size in enumerate(self._sizes_of(record.job)):
            if size and number != but:
                self._pools[number].discipline.withdraw(record.seq)

    def _refuse(self, record: JobRecord) -> None:
        """Undo a start that does not fit: the job waits again, and the node has no room until it changes."""
        number, server = self._running.pop(record.seq)
        discipline = self._pools[number].discipline
        discipline.leave(record.seq, server)
        discipline.room(server, 0)
        self.joined(record)


class _Behind:
    """Finds the first job of the queue that a start passes because it does not fit; valid for one pass."""

    def __init__(self, queue: ShapeQueue, capacity: Capacity) -> None:
        self._queue = queue
        self._capacity = capacity
        self._stuck = ""

    def first(self, starting: JobRecord) -> str:
        """Id of the passed job, or ""; a job that did not fit is not retried, as capacity only shrinks."""
        first = self._queue.first()
        if first is None or (first.order_key, first.seq) >= (starting.order_key, starting.seq):
            return ""
        if first.id != self._stuck and self._capacity.place(first.job) is not None:
            return ""
        self._stuck = first.id
        return first.id
