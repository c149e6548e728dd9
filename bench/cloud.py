"""A cloud for the live scheduler, simulated: it sells out, fails, preempts and is cut off, by a seed."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.sites import HOUR_S, Luck, Past, Plan, SimSite, cancel, leave, now_of_loop, refuse
from starburst.app.config.home import Home
from starburst.clouds.machine_dir import MachineDir
from starburst.core.model.events import (
    Event,
    InstanceFailed,
    InstanceGone,
    InstanceReachable,
    InstanceReady,
    InstanceUnreachable,
    OffersChanged,
    RunEnd,
    SiteSynced,
)
from starburst.domain.cloud import Instance, InstancePhase, Offer
from starburst.domain.job import Site
from starburst.domain.money import Money
from starburst.runs.ports import Cloud


@dataclass(slots=True)
class LiveMachine:
    """A machine that was asked for and has not ended."""

    offer: Offer
    rate: Money
    launched_at: float
    expires_at: float
    takes_runs: bool = False
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class SimCloud(SimSite, Cloud):
    """Machines, by the second. Its own record of every bill is the file `bills`: id, micro-dollars."""

    site = Site.CLOUD

    def __init__(
        self,
        offers: Sequence[Offer],
        plans: dict[str, Plan],
        luck: Luck,
        seed: int,
        home: Home,
        *,
        look_s: float,
        controller: str,
        lease_s: float,
    ) -> None:
        super().__init__(plans, luck, seed, home.cloud / "runs", look_s)
        self.offers = tuple(offers)
        self.machines: dict[str, LiveMachine] = {}
        self.bills = home.root / "bills.csv"
        self._ended = Past()
        self._home = home
        self._controller = controller
        self._lease_s = lease_s

    def facts(self) -> list[Event]:
        """What is so."""
        synced = SiteSynced(self.site, frozenset(self.live), frozenset(self.machines))
        return [OffersChanged(self.offers), synced]

    async def launch(self, instance_id: str, offer: Offer) -> None:
        """See the port."""
        await self._call(lambda: self._launch(instance_id, offer))

    async def terminate(self, instance_id: str) -> None:
        """See the port."""
        await self._call(lambda: self._terminate(instance_id))

    async def renew(self, instance_ids: list[str]) -> None:
        """See the port."""
        for name in instance_ids:
            if name in self.machines:
                self.machines[name].expires_at = now_of_loop() + self._lease_s

    async def owned(self) -> list[Instance]:
        """See the port."""
        now = now_of_loop()
        self.broken += [
            f"the lease of {name} ran out" for name, m in self.machines.items() if m.expires_at < now
        ]
        if self._draw.random() < self.luck.call_fails:
            refuse()
        return [
            Instance(
                name,
                machine.offer.name,
                InstancePhase.READY if machine.takes_runs else InstancePhase.LAUNCHING,
                machine.launched_at,
                controller=self._controller,
                expires_at=machine.expires_at,
            )
            for name, machine in self.machines.items()
        ]

    def is_up(self, where: str) -> bool:
        """Whether a run may start there."""
        return where in self.machines and self.machines[where].takes_runs

    def gpus(self, where: str) -> int:
        """How many there are; of one that is gone, none are in the way of anybody."""
        return self.machines[where].offer.capacity.gpus if where in self.machines else 10**6

    def _launch(self, name: str, offer: Offer) -> None:
        if name in self.machines or name in self._ended:
            return
        chance, now = self._draw.random(), now_of_loop()
        if chance < self.luck.sold_out:
            self._fail(name, self._draw.uniform(1, 15), InstanceFailed(name, "sold out", sold_out=True))
            return
        price = offer.price_per_hour or Money()
        machine = LiveMachine(offer, price, now, now + self._lease_s)
        if self._draw.random() < self.luck.costs_more:
            machine.rate = Money(round(1.1 * price.micro_usd))
        if chance < self.luck.sold_out + self.luck.launch_fails:
            ended_at = now + self._draw.uniform(20, 200)
            self._bill(name, price, now, ended_at)
            failed = InstanceFailed(name, "it did not come up", launched_at=now, ended_at=ended_at)
            self._fail(name, ended_at - now, failed)
            return
        self.machines[name] = machine
        boot_s = offer.ready_s * self._draw.uniform(0.7, 1.6)
        self._after(machine.timers, boot_s, lambda: self._come_up(name))

    def _fail(self, name: str, pause_s: float, failed: InstanceFailed) -> None:
        self._ended.add(name)
        asyncio.get_running_loop().call_later(pause_s, self.report, failed)

    def _come_up(self, name: str) -> None:
        machine, luck = self.machines[name], self.luck
        machine.takes_runs = True
        self.report(InstanceReady(name, machine.launched_at, machine.rate))
        rate = luck.spot_taken if machine.offer.spot else luck.machine_dies
        dies_s, cut_off_s = (self._draw.expovariate(chance / HOUR_S) for chance in (rate, luck.cut_off))
        self._after(machine.timers, dies_s, lambda: self._gone(name, preempted=machine.offer.spot))
        if cut_off_s < dies_s:
            self._after(machine.timers, cut_off_s, lambda: self._cut_off(name))

    def _cut_off(self, name: str) -> None:
        """Nobody gets through for a while, which may be longer than it is given."""
        self.report(InstanceUnreachable(name))
        timers = self.machines[name].timers
        self._after(timers, self._draw.uniform(60, 1200), lambda: self.report(InstanceReachable(name)))

    def _terminate(self, name: str) -> None:
        machine = self.machines.get(name)
        if machine is None:
            if name not in self._ended:
                self._ended.add(name)
                self._bill(name, Money(), 0.0, 0.0)
                self.report(InstanceGone(name, now_of_loop(), now_of_loop()))
            return
        machine.takes_runs = False
        cancel(machine.timers)
        self._after(machine.timers, self._draw.uniform(5, 40), lambda: self._gone(name))

    def _gone(self, name: str, *, preempted: bool = False) -> None:
        machine, now = self.machines.pop(name), now_of_loop()
        cancel(machine.timers)
        self._ended.add(name)
        self._bill(name, machine.rate, machine.launched_at, now)
        self.lose(name, RunEnd.LOST, f"{name} went away")
        self.report(InstanceGone(name, machine.launched_at, now, preempted))

    def _bill(self, name: str, rate: Money, launched_at: float, ended_at: float) -> None:
        with self.bills.open("a", encoding="utf-8", newline="") as lines:
            csv.writer(lines).writerow([name, rate.for_seconds(ended_at - launched_at).micro_usd])
        here = MachineDir.of(self._home.machines, self._controller, name).path
        here.mkdir(parents=True)
        leave(here / "ended.json", {"launched_at": launched_at, "ended_at": ended_at})

    def billed(self) -> dict[str, int]:
        """Every machine that ended, and its bill in micro-dollars."""
        if not self.bills.exists():
            return {}
        with self.bills.open(encoding="utf-8", newline="") as lines:
            return {name: int(micro) for name, micro in csv.reader(lines)}
