"""Whatever happens, no window's bill is above its cap by more than what runs costs until it is gone.

Jobs ask for graces of years and say that they take seconds. The cloud here keeps its own bills: machines
may take long to come up and to end, runs overstay their estimates and use their grace to the last second,
prices turn out higher, and the controller restarts. What the books of the scheduler say is never believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from starburst.core.model.actions import Action, LaunchInstance, StartRun, StopRun, TerminateInstance
from starburst.core.model.events import (
    Event,
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    JobSubmitted,
    NodesChanged,
    OffersChanged,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from starburst.core.model.settings import Settings
from starburst.core.steps.budget import cap_statuses
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Facts
from starburst.domain.job import Job, Site
from starburst.domain.money import Money
from starburst.policy.caps import Cap
from starburst.policy.cost_allocation import Use, divide
from starburst.store import codec
from tests.builders import HOUR, Watched, job, nodes, offer, snapshot

OFFERS = (offer("one", 1, 3.0), offer("four", 4, 9.0), offer("dark", 8, None))
#: The longest that things take in this world; seconds.
BOOT_S, END_S, GRACE_S = 900.0, 120.0, 300.0
USERS, QUEUES = ("ada", "bob"), ("q", "r")


@dataclass(frozen=True)
class Plan:
    """What a job does: when it comes, what it says and how long it really takes."""

    at: float
    job: Job
    takes_s: float


@dataclass
class Machine:
    """As the cloud knows it: micro-dollars per hour, and when it was billed."""

    rate: float
    asked_at: float
    launched_at: float | None = None
    ended_at: float | None = None
    ending: bool = False
    #: When it ends, though the word of that comes later.
    ends: float = inf


class World:
    """A cloud of its own mind around a scheduler."""

    def __init__(self, told: Settings, plans: list[Plan], luck: list[int]) -> None:
        self.scheduler = Watched(told)
        self.now = 0.0
        self.luck = luck
        self.rolls = count()
        self.seq = count()
        self.heap: list[tuple[float, int, Event]] = []
        self.machines: dict[str, Machine] = {}
        self.plans = {plan.job.id: plan for plan in plans}
        #: Attempts that are alive.
        self.runs: set[tuple[str, int]] = set()
        #: Machine → who had how much of it and when.
        self.uses: dict[str, list[Use]] = {}
        self.dearer: set[str] = set()
        self.at(0.0, NodesChanged(nodes(2)))
        self.at(0.0, OffersChanged(OFFERS))
        for plan in plans:
            self.at(plan.at, JobSubmitted(plan.job))

    def roll(self, most: int) -> int:
        """Luck, as drawn."""
        return self.luck[next(self.rolls) % len(self.luck)] % most

    def at(self, when: float, event: Event) -> None:
        heappush(self.heap, (when, next(self.seq), event))

    def run(self, until: float) -> None:
        """Time passes."""
        while True:
            due = min(self.heap[0][0] if self.heap else inf, self.scheduler.next_wakeup())
            if due > until:
                return
            assert due >= self.now
            self.now = due
            batch = []
            while self.heap and self.heap[0][0] <= due:
                event = heappop(self.heap)[2]
                if self.still(event):
                    batch.append(event)
            self.step(batch)
            if self.roll(9) == 0:
                self.restart()

    def step(self, batch: list[Event]) -> None:
        for action in self.scheduler.handle(batch, self.now):
            self.obey(action)
        changes = self.scheduler.take_changes()
        for machine in changes.instances.values():
            self.uses[machine.id] = list(machine.uses)

    def still(self, event: Event) -> bool:
        """Whether what was to come comes; the world changes as it does."""
        match event:
            case RunStarted(name, attempt):
                return (name, attempt) in self.runs
            case RunEnded(name, attempt):
                alive = (name, attempt) in self.runs
                self.runs.discard((name, attempt))
                return alive
            case InstanceReady(name, launched_at):
                machine = self.machines[name]
                if machine.ending or machine.ended_at is not None:
                    return False  # nobody waits for it: it is billed as listed, from when it was asked for
                machine.launched_at = launched_at
                if event.rate is not None:
                    self.dearer |= {name} if event.rate.micro_usd > machine.rate else set()
                    machine.rate = event.rate.micro_usd
                return True
            case InstanceFailed(name):
                machine = self.machines[name]
                if machine.ended_at is not None or machine.ending:
                    return False
                machine.launched_at, machine.ended_at = event.launched_at, event.ended_at or self.now
                return True
            case InstanceGone(name):
                machine = self.machines[name]
                machine.ended_at = event.ended_at
                machine.launched_at = event.launched_at
                return True
        return True

    def obey(self, action: Action) -> None:
        match action:
            case StartRun(name, attempt):
                self.runs.add((name, attempt))
                self.at(self.now, RunStarted(name, attempt))
                self.at(self.now + self.plans[name].takes_s, RunEnded(name, attempt, RunEnd.EXITED, 0))
            case StopRun(name, attempt, _, grace_s):
                assert grace_s <= GRACE_S
                self.at(self.now + grace_s * self.roll(3) / 2, RunEnded(name, attempt, RunEnd.STOPPED))
            case LaunchInstance(name):
                thought = self.scheduler.state.fleet.instances[name].rate
                real = thought if self.roll(5) else Money(round(thought.micro_usd * 1.2))
                self.machines[name] = Machine(thought.micro_usd, self.now)
                boot_s = BOOT_S * self.roll(4) / 3
                if self.roll(7) == 0:
                    billed = (self.now, self.now + boot_s) if self.roll(2) else (None, None)
                    self.at(self.now + boot_s, InstanceFailed(name, "no", True, *billed))
                else:
                    began = self.now + boot_s * self.roll(2) / 2
                    self.at(self.now + boot_s, InstanceReady(name, began, real))
            case TerminateInstance(name):
                machine = self.machines[name]
                machine.ending = True
                ends = machine.ends = self.now + END_S * self.roll(3) / 2
                began = machine.asked_at if machine.launched_at is None else machine.launched_at
                # The word comes late: it has ended some time before we hear of it.
                self.at(ends + 600.0 * self.roll(2), InstanceGone(name, began, ends))

    def restart(self) -> None:
        """From what the store would have kept; nobody notices."""
        before = self.scheduler
        kept = snapshot(before)
        kept = replace(kept, facts=codec.decode(Facts, codec.encode(kept.facts)))
        again = restore(before.state.settings, kept)
        reborn = Watched(before.state.settings)
        vars(reborn).update({**vars(again), "live": before.live, "log": before.log})
        assert cap_statuses(reborn.state) == cap_statuses(before.state)
        self.scheduler = reborn
        for site in Site:
            runs, machines = frozenset(self.runs), frozenset(self.machines)
            self.step([SiteSynced(site, runs, machines)])

    def bill(self, cap: Cap, start: float, end: float) -> float:
        """What the cloud asks of those that a cap covers for a time; micro-dollars."""
        cost = 0.0
        for instance, machine in self.machines.items():
            if machine.launched_at is not None:
                over = min(self.now, machine.ends) if machine.ended_at is None else machine.ended_at
                seconds = divide(self.uses[instance], max(start, machine.launched_at), min(end, over))
                covered = sum(part for name, part in seconds.items() if cap.covers(self.plans[name].job))
                cost += machine.rate * covered / HOUR
        return cost


def overrun(world: World, cap: Cap, start: float, end: float) -> float:
    """How much a window may cost above its cap: what ran when that was reached, until it is gone.

    A machine that came up dearer than thought was counted at the old rate while it came up.
    """
    reached = [d.at for d in world.scheduler.log if (d.subject, d.kind) == (cap.name, "cap-reached")]
    allowed = 0.0
    for name, machine in world.machines.items():
        over = inf if machine.ended_at is None else machine.ended_at
        if any(cap.covers(world.plans[use.job_id].job) for use in world.uses[name]):
            if any(start <= at < end and machine.asked_at <= at <= over for at in reached):
                allowed += machine.rate * (GRACE_S + END_S) / HOUR
            if machine.asked_at < end and over > start and name in world.dearer:
                allowed += machine.rate / 6 * BOOT_S / HOUR
    return allowed


caps = st.builds(
    Cap,
    st.sampled_from([2, 6, 15, 40]).map(Money.of),
    st.sampled_from(["hour", "day"]),
    queue=st.sampled_from([None, *QUEUES]),
    user=st.sampled_from([None, *USERS]),
    warn_at=st.sampled_from([0.0, 0.5, 1.0]),
    then=st.just("stop"),
)


@st.composite
def plans(draw: st.DrawFn) -> list[Plan]:
    found = []
    for n in range(draw(st.integers(1, 9))):
        made = job(
            f"j{n}",
            draw(st.sampled_from([1, 2, 4])),
            hours=draw(st.sampled_from([None, 0.001, 0.1, 1.0])),
            cloud=draw(st.sampled_from(["only", "only", "auto"])),
            user=draw(st.sampled_from(USERS)),
            queue=draw(st.sampled_from(QUEUES)),
            checkpoint=draw(st.booleans()),
            grace_s=draw(st.sampled_from([0.0, GRACE_S, 2e9])),
        )
        at = draw(st.integers(0, 40)) * 300.0
        found.append(Plan(at, made, draw(st.sampled_from([60.0, 0.4 * HOUR, 3 * HOUR]))))
    return found


def playing(chosen: list[Cap], packer: str, **more: Any) -> Settings:
    unique = {cap.name: cap for cap in chosen}
    moves = {"pack_period_s": 600.0, "move_min_run_s": 60.0} if packer != "none" else {}
    return Settings(
        waiting="constant",
        factor=600.0,
        returns="never",
        packer=packer,
        caps=tuple(unique.values()),
        max_losses=1000,
        max_grace_s=GRACE_S,
        **moves,
        **more,
    )


luck = st.lists(st.integers(0, 1000), min_size=40, max_size=40)


@settings(max_examples=20)
@given(st.lists(caps, min_size=1, max_size=3), st.sampled_from(["none", "eva", "stratus"]), plans(), luck)
def test_no_window_costs_more_than_its_cap_and_what_runs_until_it_is_gone(
    chosen: list[Cap], packer: str, load: list[Plan], rolls: list[int]
) -> None:
    world = World(playing(chosen, packer), load, rolls)
    for hour in range(1, 27):
        world.run(hour * HOUR)
        for cap in world.scheduler.state.settings.caps:
            start, end = cap.window(hour * HOUR - 1)
            limit = cap.limit.micro_usd + overrun(world, cap, start, end)
            assert world.bill(cap, start, end) <= limit + 10, (cap.name, hour)


@settings(max_examples=15)
@given(st.lists(caps, min_size=1, max_size=2), st.sampled_from(["none", "eva"]), plans(), luck)
def test_what_the_books_say_of_a_quiet_world_is_what_the_cloud_asks(
    chosen: list[Cap], packer: str, load: list[Plan], rolls: list[int]
) -> None:
    """Once all machines are gone, each window's books and bills agree."""
    chosen = [replace(cap, limit=Money.of(10_000), per="day") for cap in chosen]
    world = World(playing(chosen, packer), load, rolls)
    world.run(23.9 * HOUR)
    assume(not world.scheduler.state.fleet.instances)
    for name, standing in cap_statuses(world.scheduler.state).items():
        cap = next(cap for cap in world.scheduler.state.settings.caps if cap.name == name)
        assert abs(standing.spent - world.bill(cap, 0.0, 24 * HOUR)) < 10 + len(world.machines)
        assert standing.reserved == 0
