"""Bills and caps against what the cloud of the run says itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from starburst.app.config.caps import CapConfig
from starburst.clouds.sky.machines.machine import COARSE_S, DOWN_S, SWITCH_S
from starburst.clouds.sky.machines.naming import Naming, label
from starburst.clouds.sky.machines.observer import WORD_S
from starburst.clouds.sky.machines.retention import RETAINED_S
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.money import Money
from starburst.store.listings import queries
from starburst.store.schema import history
from starburst.store.store import Store
from tests.clouds.sky.fake_vm import Vm
from tests.storm.model.cloud import BEFORE_BOOT_S
from tests.storm.windows import Windows

if TYPE_CHECKING:
    from tests.storm.run import Storm
    from tests.storm.verdict import Verdict

#: By how much a machine's bill may be too long where nobody tells its end, seconds: its lease, the
#: idle minutes, and what its switch takes at most.
LATE_S = 1200 + 60 * 5 + SWITCH_S + DOWN_S + COARSE_S
#: And of one that its cloud has forgotten, and of whose switch nobody was told: until SkyPilot answers.
UNARMED_S = 8 * 3600.0
#: `cloud.launch_limit`.
LAUNCH_LIMIT_S = 1200.0
#: A price that is told counts unless its scheduler dies or is stopped within so many seconds.
NOTED_S = 300.0
#: Seconds until machines are ended that run when a cap is reached, where nothing holds that up: the longest
#: grace, `policy.max_grace`, a boot that has begun, a look, and the end.
OVER_S = 600.0 + 300.0 + 120.0 + DOWN_S
#: By how much the scheduler's clock is off at most, seconds, with these faults: a time that nobody else
#: says is by that clock.
OFF_S, WRONG_CLOCKS = 3600.0, {"clock-wrong", "clock-drifts"}
#: Faults that hold up nobody's end, and change no bill.
CALM = (
    *("node-", "pod-", "oom-", "image-", "job-", "http-", "broker-", "others-"),
    *("regretted", "sold-out", "cap-lowered"),
)


class Bills:
    """What is wrong with money goes to the verdict."""

    def __init__(self, storm: Storm, verdict: Verdict) -> None:
        self._storm, self._verdict = storm, verdict
        #: Machines that came up.
        self.up: set[str] = set()
        self.windows = Windows()
        #: By cap and begin of its window, seconds: what its bill may come to, micro-dollars.
        self._most: dict[tuple[object, float], float] = {}

    def at_launch(self, machine: str, jobs: Sequence[str], now: float) -> None:
        """Nothing is rented for whom a cap is reached by the cloud's own bills."""
        for cap in self._storm.process.config.caps:
            began = self.windows.began_at(cap.per, now)
            narrow = cap.queue is not None or cap.user is not None
            if began is None or (narrow and not any(self._counts(cap, job) for job in jobs)):
                continue
            self._verdict.checked["launches under a narrow cap" if narrow else "launches under a cap"] += 1
            spent = self._spent(began, now, cap)
            if spent > 1.02 * 1e6 * float(cap.usd):
                whose = "".join(f" of {one}" for one in (cap.user, cap.queue) if one)
                self._verdict.wrong.append(
                    f"{machine}: rented at {spent / 1e6:.2f} of {cap.usd} USD per {cap.per}{whose}"
                )

    def _counts(self, cap: CapConfig, job: str) -> bool:
        """Whether a job is of those that a cap is for, as far as is known."""
        asked = self._storm.users.asked.get(job)
        return asked is not None and cap.user in (None, asked.user) and cap.queue in (None, asked.queue)

    def meanwhile(self) -> None:
        """A cap that is reached is passed by no more than what ran then costs until its end."""
        storm, now = self._storm, self._storm.loop.time()
        if any(not name.startswith(CALM) for name in storm.weather.on):
            return
        for cap in storm.process.config.caps:
            began = self.windows.began_at(cap.per, now)
            if cap.queue is not None or cap.user is not None or cap.then != "stop" or began is None:
                continue
            spent, reached = self._spent(began, now, cap), 1e6 * float(cap.usd)
            if spent < reached:
                continue
            if (cap.usd, began) not in self._most:
                self._verdict.checked["caps that were reached"] += 1
                rates = sum(storm.cloud.rate_of(vm).micro_usd for vm in storm.cloud.alive())
                self._most[cap.usd, began] = spent + Money(rates).for_seconds(OVER_S).micro_usd
            if spent > self._most[cap.usd, began]:
                self._verdict.wrong.append(f"{spent / 1e6:.2f} of {cap.usd} USD per {cap.per} were spent")

    def _spent(self, began: float, now: float, cap: CapConfig) -> int:
        """What the cloud has charged since then, micro-dollars; what is not up is billed as listed.

        Of a cap for some jobs it is the least: machines that others shared are left out.
        """
        unbilled, up = tuple(self._verdict.unbilled), tuple(self.up)
        narrow = cap.queue is not None or cap.user is not None
        spent = 0
        for vm in self._storm.cloud.ours:
            if vm.cluster.endswith(unbilled):
                continue
            jobs = {name.rsplit("/", 2)[0] for name in vm.tasks}
            if narrow and not (jobs and all(self._counts(cap, job) for job in jobs)):
                continue
            until = vm.stopped_at or vm.ended_at or now
            seconds = max(0.0, until - max(began, vm.made_at))
            rate = self._storm.cloud.rate_of(vm, listed=not vm.cluster.endswith(up))
            spent += rate.for_seconds(seconds).micro_usd
        return spent

    def at_the_end(self, store: Store) -> None:
        """Each bill is the cloud's, and was paid."""
        storm = self._storm
        naming = Naming("starburst", str(store.fact("controller")))
        bills: dict[str, list[tuple[int, int]]] = {}
        for cluster in dict.fromkeys(vm.cluster for vm in storm.cloud.ours):
            # Where nobody told its price in time, or it never came up, it counts as listed. That it was
            # stopped before it ended its cloud does not say afterwards: the bill ends when that was noticed.
            told = cluster.endswith(tuple(self.up)) and self._is_told(cluster)
            prices = (False,) if told else (False, True)
            least, most = (
                [storm.cloud.bill_of(cluster, listed=listed, stopped=stopped) for listed in prices]
                for stopped in (True, False)
            )
            bills[naming.instance_id(cluster) or cluster] = [
                (first.micro_usd, last.micro_usd) for first, last in zip(least, most, strict=True)
            ]
        records = queries.instance_records(store, include_ended=True)
        billed = {record.id: record for record in records if record.micro_usd}
        books = {name: record.micro_usd for name, record in billed.items()}
        names = (bills.keys() - self._verdict.unbilled) | books.keys()
        self._verdict.checked["bills"] += len(names)
        for name in sorted(names):
            ours, theirs = books.get(name, 0), bills.get(name, [(0, 0)])
            if name not in bills and self._may_have_been(billed[name]):
                continue
            if not any(least <= ours <= most for least, most in theirs) and not self._guessed(
                name, ours, theirs
            ):
                said = " or ".join(map(str, sorted({bill for range_ in theirs for bill in range_})))
                self._verdict.wrong.append(f"{name}: the cloud's bill is {said}, ours {ours} micro-dollars")
        self._paid(store, books)

    def _is_told(self, cluster: str) -> bool:
        """Whether a scheduler that went on after that was told what a machine costs."""
        told = self._storm.cloud.priced.get(cluster, ())
        stops, put_back_at = self._storm.loop.stops, self._verdict.put_back_at
        return any(
            at > put_back_at and not any(at <= stop <= at + NOTED_S for stop in stops[life])
            for life, at in told
        )

    def _guessed(self, name: str, ours: int, theirs: Sequence[tuple[int, int]]) -> bool:
        """Whether a bill is within its bound where the cloud said nothing of a machine for `WORD_S`, or has
        forgotten it.

        It then goes from the machine's boot until SkyPilot took it down or its switch must have ended it.
        Of one that never came up, in a cloud that had never answered, it goes until that is settled.
        """
        cloud = self._storm.cloud
        vms = [vm for vm in cloud.ours if vm.labels and vm.cluster.endswith(name)]
        silent = [
            since
            for since, until in cloud.dark
            if until - since >= WORD_S and any(_is_there(vm, since, until) for vm in vms)
        ]
        silent += [vm.ended_at for vm in vms if vm.id in cloud.forgot and vm.ended_at is not None]
        if not silent:
            return False
        self._verdict.checked["bills without the cloud's word"] += 1
        had_answered = cloud.answered_at < min(silent)
        late_s = LATE_S if had_answered or name in self.up else LATE_S + WORD_S
        unarmed = name not in self.up or any(vm.id in cloud.without_switch for vm in vms)
        if unarmed and any(vm.id in cloud.forgot for vm in vms):
            late_s += UNARMED_S
        off_s = OFF_S if self._storm.weather.on & WRONG_CLOCKS else 0.0
        rate, by_s = cloud.rate_of(vms[0]) * len(vms), (BEFORE_BOOT_S + off_s, late_s + off_s)
        early, late = (rate.for_seconds(seconds).micro_usd + 1 for seconds in by_s)
        return min(least for least, _ in theirs) - early <= ours <= max(most for _, most in theirs) + late

    def _may_have_been(self, record: InstanceRecord) -> bool:
        """Whether a launch that made nothing is billed within its bound, as nobody could tell that.

        Its cloud did not tell what it finds of it for so long that it may have forgotten a machine.
        """
        off_s = OFF_S if self._storm.weather.on & WRONG_CLOCKS else 0.0
        told = [record.requested_at, *self._storm.cloud.searched.get(label(record.id), ())]
        longest_s = max((after - before for before, after in pairwise(told)), default=0.0)
        self._verdict.checked["bills of launches that nobody can tell of"] += 1
        most = record.rate.for_seconds(LAUNCH_LIMIT_S + LATE_S + off_s)
        return longest_s >= RETAINED_S - COARSE_S - off_s and record.micro_usd <= most.micro_usd

    def _paid(self, store: Store, books: dict[str, int]) -> None:
        """Each bill was paid by jobs."""
        with store.read() as conn:
            past = conn.scalar(select(func.sum(history.c.cloud_micro_usd))) or 0
        paid = past + sum(row.cloud_micro_usd for row in queries.jobs(store))
        if paid != sum(books.values()):
            self._verdict.wrong.append(f"micro-dollars that no job paid: {sum(books.values()) - paid}")


def _is_there(vm: Vm, since: float, until: float) -> bool:
    """Whether a machine was there, or had ended half an hour before at most, in this time."""
    return until > vm.made_at and since < (vm.ended_at or until) + 1800.0
