"""Whatever the world does, in whatever order: no two live attempts, no lost job, no forgotten machine.

The world here is a scheduler's worst customer: runs are lost, machines are preempted or never come, nodes
come and go, users cancel, reports are late, repeated and out of date, and the controller restarts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.core.model.actions import Action, LaunchInstance, StartRun, StopRun, TerminateInstance
from starburst.core.model.events import (
    CancelRequested,
    EditRequested,
    Event,
    HoldRequested,
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnfit,
    InstanceUnreachable,
    JobSubmitted,
    MachinesLost,
    NodesChanged,
    OffersChanged,
    ReleaseRequested,
    RequeueRequested,
    RunEnd,
    RunEnded,
    RunStarted,
    SiteSynced,
    Tick,
)
from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Facts, Snapshot
from starburst.core.views.validate import validate
from starburst.domain.cloud import Offer
from starburst.domain.job import JobEdit, Member, Site
from starburst.store import codec
from tests.builders import HOUR, MINUTE, Watched, job, nodes, offer, snapshot

OFFERS = (offer("spot", 2, 1), offer("big", 4, 5))
#: Where jobs that share a machine are left alone on one that is too large for them.
SIZES = (offer("one", 1, 30), offer("four", 4, 90))
SHAPES: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 3},
    {"gang": (2, 2)},
    {"gang": (4, 4)},
    {"gang": (3, 3)},  # on two machines in the cloud, each with room for others
    {"gang": (3, 3, 3), "least_tasks": 1},
    {"gang": (2, 2, 2), "least_tasks": 2},
    {"gpus": 0, "cpus": 4},
    {"gpus": 0},
]


class Chaos:
    """What really exists out there, and a scheduler that only hears of it."""

    def __init__(self, told: Settings, offers: tuple[Offer, ...] = OFFERS) -> None:
        self.scheduler = Watched(told)
        self.offers = offers
        self.now = 0.0
        self.jobs = 0
        #: (job, attempt) → how it was started, until nothing of it is alive.
        self.runs: dict[tuple[str, int], StartRun] = {}
        self.stopping: set[tuple[str, int]] = set()
        #: Machine → when it was launched, None while it boots.
        self.machines: dict[str, float | None] = {}
        self.old_reports: list[Event] = [Tick()]
        #: What the store holds: jobs and machines as text, as they were when they last changed.
        self.stored: dict[str, dict[str, str]] = {"jobs": {}, "instances": {}}
        self.ended: list[str] = []
        self.tell(NodesChanged(nodes(4, 4)), OffersChanged(offers))

    def tell(self, *events: Event) -> None:
        """The scheduler hears of events; the world obeys."""
        self.old_reports += events
        for action in self.scheduler.handle(events, self.now):
            self.obey(action)
        changes = self.scheduler.take_changes()
        for kind, kept in self.stored.items():
            kept.update({name: codec.encode(record) for name, record in getattr(changes, kind).items()})
        ends = ("succeeded", "failed", "cancelled")
        self.ended += [d.subject for d in changes.decisions if d.kind in ends]

    def obey(self, action: Action) -> None:
        """Do at once what was asked, but confirm nothing yet."""
        match action:
            case StartRun(name, attempt, _, _):
                self.runs[name, attempt] = action
            case StopRun(name, attempt, _, _):
                assert (name, attempt) in self.runs, "a run is told to stop that is not alive"
                self.stopping.add((name, attempt))
            case LaunchInstance(name, _):
                assert name not in self.machines
                self.machines[name] = None
            case TerminateInstance(name):
                assert name in self.machines, "a machine is given back that we do not have"
                busy = [run for run in self.runs.values() if name in {slot.where for slot in run.slots}]
                machine = self.scheduler.state.fleet.instances[name]
                troubled = machine.unreachable_since is not None or machine.unfit_since is not None
                assert troubled or machine.lost or not busy, "a machine is given back under a live run"

    def step(self, what: str, pick: int) -> None:
        """One thing happens; `pick` chooses to whom."""
        runs, booting = list(self.runs), [m for m, at in self.machines.items() if at is None]
        getattr(self, f"_{what}")(pick, runs, booting)

    def _submit(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        self.jobs += 1
        cloud = ("auto", "auto", "never", "only")[pick // 7 % 4]
        shape = {**SHAPES[pick % len(SHAPES)], "checkpoint": pick % 4 > 0, "retries": pick % 3}
        if pick % 8 == 3:
            shape["array"] = Member(f"m{pick % 2}", self.jobs, 99, 2)
        if pick % 9 in (4, 5) and self.jobs > 1:
            others = {f"j{1 + n % (self.jobs - 1)}" for n in (pick, pick // 9)}
            shape[("after_ok", "after_any", "after_not_ok", "after_start")[pick % 4]] = tuple(sorted(others))
        self.tell(JobSubmitted(job(f"j{self.jobs}", **shape, hours=(None, 0.1, 2)[pick % 3], cloud=cloud)))

    def _leave(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        """Jobs that may move leave for the cloud together."""
        shapes: tuple[dict[str, Any], ...] = ({"gpus": 1}, {"gpus": 3}, {"gang": (1, 3)}, {"gpus": 1})
        names = range(self.jobs + 1, self.jobs + 3 + pick % 4)
        self.jobs = names[-1]
        leavers = (job(f"j{n}", **shapes[(n + pick) % 4], cloud="only", checkpoint=n % 7 > 0) for n in names)
        self.tell(*map(JobSubmitted, leavers))

    def _all_up(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        """Machines and runs that were asked for are there."""
        for name in booting:
            self._boot(0, [], [name])
        self.tell(*(RunStarted(*key) for key in self.runs))

    def _cancel(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        name = f"j{1 + pick // 2 % (self.jobs or 1)}"
        edit = EditRequested(name, JobEdit(pick % 3, pick * MINUTE, pick * MINUTE + 1))
        self.tell(edit, (CancelRequested, RequeueRequested)[pick % 2](name))

    def _hold(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        wish = (HoldRequested, ReleaseRequested)[pick % 2]
        self.tell(wish(f"j{1 + pick // 2 % (self.jobs or 1)}"))

    def _pass_time(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        self.now = max(self.now, min(self.now + pick * MINUTE, self.scheduler.next_wakeup()))
        self.tell(Tick())

    def _start(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        if runs:
            self.tell(RunStarted(*runs[pick % len(runs)]))

    def _end(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        if runs:
            key = runs[pick % len(runs)]
            end = (RunEnd.EXITED, RunEnd.LOST, RunEnd.STOPPED)[pick // 5 % 3]
            self._over(key, end)

    def _stop(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        if self.stopping:
            self._over(sorted(self.stopping)[pick % len(self.stopping)], RunEnd.STOPPED)

    def _fail(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        if runs:
            self._over(runs[pick % len(runs)], RunEnd.EXITED, code=1)

    def _over(self, key: tuple[str, int], end: RunEnd, code: int = 0) -> None:
        del self.runs[key]
        self.stopping.discard(key)
        self.tell(RunEnded(*key, end, code if end is RunEnd.EXITED else None))

    def _boot(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        if booting:
            name = booting[pick % len(booting)]
            self.machines[name] = self.now
            self.tell(InstanceReady(name, self.now))

    def _no_launch(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        if booting:
            name = booting[pick % len(booting)]
            del self.machines[name]
            self.tell(InstanceFailed(name, "no capacity", sold_out=True))

    def _machine_ends(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        if self.machines:
            name = list(self.machines)[pick % len(self.machines)]
            self._take_machine(name, preempted=pick % 2 == 0)

    def _part_ends(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        """The cloud takes one machine of several that are rented as one."""
        several = [
            machine
            for machine in self.scheduler.state.fleet.instances.values()
            if len(machine.lost) + 1 < machine.offer.nodes and machine.id not in booting
        ]
        if several:
            machine = several[pick % len(several)]
            left = [node for node in range(machine.offer.nodes) if node not in machine.lost]
            lost = {**machine.lost, left[pick % len(left)]: self.now}
            self.tell(MachinesLost(machine.id, tuple(lost.items()), pick % 2 == 0))

    def _take_machine(self, name: str, *, preempted: bool) -> None:
        launched_at = self.machines.pop(name)
        for key, run in list(self.runs.items()):
            if {slot.where for slot in run.slots}.isdisjoint(self.machines) and run.site is Site.CLOUD:
                del self.runs[key]  # its last machine is gone, and it with it
                self.stopping.discard(key)
        begun = self.now if launched_at is None else launched_at
        self.tell(InstanceGone(name, begun, self.now, preempted))

    def _cut_off(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        if self.machines:
            name = list(self.machines)[pick % len(self.machines)]
            self.tell((InstanceUnreachable, InstanceReachable)[pick % 3 == 0](name))
            if pick % 7 == 0:
                self.tell(InstanceUnfit(name, "it takes none"))

    def _spoil(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        """What a job moves to is lost."""
        targets = [slot.where for record in self.scheduler.state.jobs.values() for slot in record.moving]
        if targets and (name := targets[pick % len(targets)]) in self.machines:
            if pick % 3 == 0:
                self.tell(InstanceUnreachable(name))
            elif name in booting:
                self._no_launch(0, [], [name])
            else:
                self._take_machine(name, preempted=pick % 2 == 0)

    def _nodes(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        self.tell(NodesChanged(((), nodes(4), nodes(4, 4), nodes(4, 4, 4))[pick % 4]))

    def _offers(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        self.tell(OffersChanged((self.offers, self.offers[:1], ())[pick % 3]))

    def _repeat(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        event = self.old_reports[pick % len(self.old_reports)]
        if isinstance(
            event, RunStarted | RunEnded | InstanceReady | InstanceGone | InstanceFailed | MachinesLost
        ):
            self.tell(event)

    def _restart(self, pick: int, runs: list[tuple[str, int]], booting: list[str]) -> None:
        """The controller comes back from its store and asks both sites what they know."""
        before, told = self.scheduler, self.scheduler.state.settings
        again = restore(told, self._from_store())
        reborn = Watched(told)
        reborn.state, reborn.live, reborn.log = again.state, before.live, before.log
        self.scheduler = reborn
        for site in Site:
            self.tell(SiteSynced(site, frozenset(self.runs), frozenset(self.machines)))

    def _from_store(self) -> Snapshot:
        """What the store gives back; it must be all that the scheduler knew."""
        live = snapshot(self.scheduler)
        jobs = [codec.decode(JobRecord, self.stored["jobs"][record.id]) for record in live.jobs]
        names = [machine.id for machine in live.instances]
        machines = [codec.decode(InstanceRecord, self.stored["instances"][name]) for name in names]
        assert jobs == live.jobs, "a job changed and was not stored"
        assert machines == live.instances, "a machine changed and was not stored"
        return replace(
            live, facts=codec.decode(Facts, codec.encode(live.facts)), jobs=jobs, instances=machines
        )

    def settle(self) -> None:
        """All goes well from now on, until nothing is left to do."""
        self.tell(NodesChanged(nodes(4, 4, 4)), OffersChanged(self.offers))
        self.tell(*map(ReleaseRequested, list(self.scheduler.state.jobs)))
        for _ in range(20 * (self.jobs + 1)):
            while self.runs:
                key = next(iter(self.runs))
                self._over(key, RunEnd.STOPPED if key in self.stopping else RunEnd.EXITED)
            for name, launched_at in list(self.machines.items()):
                record = self.scheduler.state.fleet.instances.get(name)
                if record is None or record.phase.value == "terminating":
                    self._take_machine(name, preempted=False)
                elif launched_at is None:
                    self._boot(0, [], [name])
            wakeup = self.scheduler.next_wakeup()
            if not self.runs and not self.machines and wakeup == float("inf"):
                return
            if not self.runs and wakeup < float(
                "inf"
            ):  # a job that tries again keeps its machine for the pause
                self.now = max(self.now, wakeup)
                self.tell(Tick())
        raise AssertionError("it never comes to rest")


THINGS = [
    *["submit"] * 4,
    *["start", "boot"] * 3,
    *["end", "pass_time", "machine_ends", "part_ends", "cut_off"] * 2,
    *["cancel", "hold", "fail", "no_launch", "nodes", "offers", "repeat", "restart"],
]
scripts = st.lists(st.tuples(st.sampled_from(THINGS), st.integers(0, 60)), min_size=10, max_size=80)
MOVERS_THINGS = [
    *["all_up", "pass_time"] * 8,
    *["leave", "end"] * 4,
    *["boot", "stop", "restart", "spoil"] * 2,
    *["machine_ends", "cut_off", "cancel", "no_launch", "start", "offers", "repeat"],
]
movers_scripts = st.lists(
    st.tuples(st.sampled_from(MOVERS_THINGS), st.integers(0, 60)), min_size=20, max_size=80
)


@st.composite
def tellings(draw: st.DrawFn) -> Settings:
    """Settings under which things move."""
    more: dict[str, Any] = {
        "waiting": draw(st.sampled_from(["no-wait", "constant", "star"])),
        "budget_mode": draw(st.sampled_from(["open", "calibrated"])),
        "hopeless": draw(st.sampled_from(["wait", "leave"])),
        "factor": 0.2 * HOUR,
        "order": draw(st.sampled_from(["fifo", "fair"])),
        "max_passes": draw(st.sampled_from([0, 1, 1000])),
        "out_of_order": draw(st.booleans()),
        "backfill": draw(st.booleans()),
        "queue_limit": draw(st.sampled_from([None, 2])),
        "returns": draw(st.sampled_from(["never", "t-max", "if-it-pays"])),
        "t_max_s": 300.0,
        "offload_cpu_only": draw(st.booleans()),
        "max_losses": draw(st.sampled_from([1, 6])),
        "packer": draw(st.sampled_from(["none", "eva", "eva-full", "stratus", "optimal"])),
        "pack_window_s": draw(st.sampled_from([0.0, 30.0])),
        "pack_period_s": draw(st.sampled_from([0.0, 60.0])),
        "move_min_run_s": 30.0,
        "move_s": draw(st.sampled_from([0.0, 60.0])),
        "unreachable_s": 200.0,
    }
    return Settings(**more)


@settings(max_examples=120)
@given(tellings(), scripts)
def test_whatever_happens_every_job_ends_once_and_nothing_is_left(told: Settings, script: Any) -> None:
    check(Chaos(told), script)


@settings(max_examples=40)
@given(tellings(), st.sampled_from(["eva", "eva-full", "stratus", "optimal"]), movers_scripts)
def test_whatever_happens_to_jobs_that_move_each_ends_once_and_nothing_is_left(
    told: Settings, packer: str, script: Any
) -> None:
    check(Chaos(replace(told, packer=packer, pack_period_s=60.0), SIZES), script)


def check(chaos: Chaos, script: Any) -> None:
    """Play it, let all go well then, and see what there is."""
    for what, pick in script:
        chaos.step(what, pick)
    chaos.settle()
    validate(chaos.scheduler.state)
    assert sorted(chaos.ended) == sorted(f"j{n + 1}" for n in range(chaos.jobs))
    assert not chaos.scheduler.state.jobs
    assert not chaos.scheduler.state.fleet.instances
    assert [chaos.scheduler.state.capacity.free(name).gpus for name in ("n0", "n1", "n2")] == [4, 4, 4]
