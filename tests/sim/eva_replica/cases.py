"""Small machines, jobs and packers that do as they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sim.eva_replica.run import simulate_packed
from sim.packing.cloud import CloudModel
from sim.packing.inputs import Kind, MachineType, PackedJob, PairThroughput
from sim.packing.results import PackedResult
from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.plan import Plan, Situation, TaskKey, assemble
from starburst.policy.packing.throughput import Throughput

#: A tenth of a cent per second; up 60 s after it was asked for, paid for from second 10 on.
SMALL = MachineType(Offer("small", Resources.of(1, 8, 16), Money.of("3.60"), ready_s=60), 10, 20, 30, 1)
#: Room for two.
BIG = MachineType(Offer("big", Resources.of(2, 16, 32), Money.of("5.40"), ready_s=60), 10, 20, 30, 1)
KINDS = {"w": Kind("w", 1.0, fetch_s=5, build_s=10, kill_s=1, upload_s=4, init_s=20)}
PAIRS = PairThroughput({("w", "w"): 0.8})

#: Machine → jobs it is to hold; "new small" and the like rent one.
Placing = Mapping[str, Sequence[TaskKey]]


def job(name: str, arrival_s: float, duration_s: float, tasks: int = 1) -> PackedJob:
    """A job whose tasks ask for one GPU each."""
    gang = tuple(Task(name, rank, Resources.of(1, 4, 8), workload="w") for rank in range(tasks))
    return PackedJob(name, arrival_s, duration_s, gang)


@dataclass
class Scripted:
    """Places tasks as the script says for a time; at others leaves all as it is."""

    script: Mapping[float, Placing]
    asked: list[float] = field(default_factory=list)
    #: What it was told of a pair, each time.
    pairs: list[float] = field(default_factory=list)
    situations: list[Situation] = field(default_factory=list)

    def plan(self, situation: Situation) -> Plan:
        """Do as told."""
        self.asked.append(situation.now)
        self.pairs.append(round(situation.throughput.pair("w", "w"), 6))
        self.situations.append(situation)
        tasks = {task.key: task for task in situation.tasks}
        held = {rented.id: rented.held for rented in situation.instances}
        placing = self.script.get(situation.now, held)
        offers = {offer.name: offer for offer in situation.offers}
        kept = {name: [tasks[key] for key in keys] for name, keys in placing.items() if name in held}
        launches = [
            (offers[name.split()[1]], [tasks[key] for key in keys])
            for name, keys in placing.items()
            if name.startswith("new")
        ]
        return assemble(situation, kept, launches, reason="as told")


@dataclass
class Planned:
    """Makes plans with a function."""

    plan: Callable[[Situation], Plan]


def simulate(
    jobs: Sequence[PackedJob],
    packer: Scripted | Planned,
    *,
    sees: Throughput | None = None,
    **options: float,
) -> PackedResult:
    """With the machines and the workload of this file."""
    cloud = CloudModel([SMALL, BIG], KINDS, PAIRS)
    return simulate_packed(jobs, cloud, packer, sees=sees, **options)  # type: ignore[arg-type]
