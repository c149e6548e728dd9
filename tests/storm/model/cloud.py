"""SkyPilot, its cloud and the machines in memory: what is rented, what runs there, what it costs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from math import inf
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from starburst.clouds.sky.access.ports import (
    CapacityError,
    ClusterStatus,
    LaunchSpec,
    SkyError,
    SkyNotFoundError,
)
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from tests.app.virtual import wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_vm import Vm, exit_of
from tests.storm.loop import of_world
from tests.storm.model.marks import Marks
from tests.storm.weather import Weather

T = TypeVar("T")

#: Instance types: GPUs, CPUs, GiB, dollars per hour on demand and spot.
TYPES = {
    "p3.2xlarge": (1, 8, 61, "3.06", "0.92"),
    "p3.8xlarge": (4, 32, 244, "12.24", "3.67"),
    "m5.2xlarge": (0, 8, 32, "0.384", "0.15"),
}
#: Virtual seconds: from a launch to a VM that exists, to one that is up; to end one.
RENT_S, BOOT_S, DOWN_S = (3.0, 60.0), (30.0, 240.0), (2.0, 60.0)
#: Of a machine's bill, virtual seconds before its system boots; and of a task that waits for a dead one.
BEFORE_BOOT_S, FOR_EVER_S = 25.0, 1e7


def offers(prices: int = 1) -> list[Offer]:
    """All that there is to rent, at so many times the first price."""
    found = []
    for name, (gpus, cpus, memory, price, spot_price) in TYPES.items():
        size = Resources.of(gpus, cpus, memory, "V100" if gpus else "")
        base = f"aws/us-east-1/{name}"
        now, spot_now = (Money.of(of_old) * prices for of_old in (price, spot_price))
        found.append(Offer(base, size, now, "us-east-1", cloud="aws"))
        found.append(Offer(f"{base}/spot", size, spot_now, "us-east-1", spot=True, cloud="aws"))
    return found


class ModelCloud(FakeSky):
    """What is so in the cloud; it lives on when a scheduler dies."""

    def __init__(self, root: Path, weather: Weather, marks: Marks, seed: int) -> None:
        super().__init__(root)
        self.weather, self.marks = weather, marks
        self.random = Random(f"{seed}/cloud")
        marks.settle = self.settle
        #: Names of offers that are not there now; by what all prices are higher now than at first, and by
        #: what those of clusters are.
        self.withdrawn: set[str] = set()
        self.prices = 1
        self.dearer: dict[str, int] = {}
        #: What machines cost an hour by their offers, all nodes together, by their ids.
        self.offered: dict[str, Money] = {}
        #: What each VM was launched as, by its id.
        self.specs: dict[str, LaunchSpec] = {}
        #: Machines whose switch cannot be set.
        self.without_switch: set[str] = set()
        #: From when until when its own API answers nothing; the last may go on.
        self.dark: list[tuple[float, float]] = []
        #: When it answered for the first time.
        self.answered_at = inf
        #: By intent: when it told what it finds by its labels.
        self.searched: dict[str, list[float]] = {}
        #: By cluster: which schedulers were told what it costs, and when.
        self.priced: dict[str, list[tuple[int, float]]] = {}
        #: Machines that were told to begin what they have no GPUs for.
        self.overbooked: list[str] = []
        #: Machines that have ended, and that its own API told nothing of when it was asked.
        self.forgot: set[str] = set()
        #: Machines of others on the account, which they have not ended yet.
        self.strangers: list[Vm] = []
        #: What SkyPilot listed of late, and when.
        self.listings: deque[tuple[float, list[ClusterStatus]]] = deque(maxlen=20)
        #: Tasks whose begin is marked, and whose end is.
        self._begun: set[str] = set()
        #: Machines that have ended, and whose tasks' ends are marked.
        self._settled: set[str] = set()

    @property
    def ours(self) -> list[Vm]:
        """What was rented for this home, ended or not."""
        return [vm for vm in self.vms if vm.id in self.specs]

    def alive(self, cluster: str | None = None) -> list[Vm]:
        """See `FakeSky`; without a name none of a stranger."""
        there = super().alive(cluster)
        return there if cluster else [vm for vm in there if vm.id in self.specs]

    def falls_silent(self) -> None:
        """Its own API answers nothing from now on."""
        if self.cloud_up:
            self.cloud_up = False
            self.dark.append((wall(), FOR_EVER_S + wall()))

    def answers(self) -> None:
        """Its own API answers again."""
        if not self.cloud_up:
            self.cloud_up = True
            self.dark[-1] = (self.dark[-1][0], wall())

    def begin(self, name: str, cluster: str, work: Coroutine[Any, Any, None]) -> str:
        """A request goes on whoever dies."""
        return of_world(lambda: super(ModelCloud, self).begin(name, cluster, work))

    async def do_launch(self, spec: LaunchSpec) -> None:
        """Rent what was asked for, unless there is one of that name."""
        while any(r.cluster == spec.cluster and r is not self._mine() for r in self._launches()):
            await asyncio.sleep(0.5)
        await asyncio.sleep(self.random.uniform(*RENT_S))
        if self.alive(spec.cluster):
            return
        weather = self.weather
        if weather.strikes("sold-out", spec.cluster):
            raise CapacityError(f"no {spec.instance_type} in {spec.infra}")
        self.clusters_known[spec.cluster] = spec
        self.dearer[spec.cluster] = self.prices * (1 + weather.strikes("dearer", spec.cluster))
        made = [self._make(spec, node) for node in range(spec.nodes)]
        await asyncio.sleep(self.random.uniform(*BOOT_S))
        if weather.strikes("late-up", spec.cluster):
            await asyncio.sleep(weather.draw("late-up").uniform(900, 5400))
        if weather.strikes("never-up", spec.cluster):
            await asyncio.sleep(4 * 3600)
            raise SkyError(f"{spec.cluster}: gave up")
        if weather.strikes("dies-in-boot", spec.cluster):
            made[-1].ended_at = made[-1].ended_at or wall()
            raise SkyError(f"{spec.cluster}: the machine went away")
        if weather.strikes("setup-fails", spec.cluster):
            raise SkyError(f"{spec.cluster}: setup failed")
        if weather.strikes("launch-lies", spec.cluster):
            raise SkyError(f"{spec.cluster}: an error although all is up")

    def _make(self, spec: LaunchSpec, node: int) -> Vm:
        gpus, id_ = TYPES[spec.instance_type][0], f"i-{len(self.vms)}"
        vm = Vm(spec.cluster, spec.spot, gpus, wall(), id_, spec.labels, lease_until=wall() + 900, node=node)
        self.vms.append(vm)
        self.specs[id_] = spec
        if self.weather.strikes("switch-fails", spec.cluster):
            self.without_switch.add(id_)
        return vm

    async def do_down(self, cluster: str) -> None:
        """Take it down, unless that fails or is a lie."""
        if cluster not in self.clusters_known:
            raise SkyNotFoundError(cluster)
        await asyncio.sleep(self.random.uniform(*DOWN_S))
        if self.weather.strikes("down-fails", cluster):
            raise SkyError(f"{cluster}: could not be torn down")
        if self.weather.strikes("down-lies", cluster):
            if self.weather.draw("down-lies").random() < 0.5:
                self.clusters_known.pop(cluster, None)
            return
        for vm in self.alive(cluster):
            if vm.tagged:
                self.end_vm(vm)
        self.clusters_known.pop(cluster, None)

    def shuts_down(self, vm: Vm) -> None:
        """Its system ends what runs there, which may say whatever it likes of that."""
        self._settle(vm)
        for task in vm.tasks.values():
            if task.began_at is not None and task.exit is None:
                task.exit = exit_of(self.random.choice((0, 143)), "loss", wall())
        self._settle(vm)

    def end_vm(self, vm: Vm) -> None:
        """Its end is now."""
        self.settle()
        vm.ended_at = vm.ended_at or wall()
        self.settle()

    def rate_of(self, vm: Vm, *, listed: bool = False) -> Money:
        """What an hour of it costs, or was said to cost."""
        spec = self.specs[vm.id]
        if listed and (said := self.offered.get(vm.cluster.split("-", 2)[-1])):
            return Money(said.micro_usd // spec.nodes)
        _, _, _, price, spot_price = TYPES[spec.instance_type]
        return Money.of(spot_price if vm.spot else price) * (1 if listed else self.dearer.get(vm.cluster, 1))

    def bill_of(self, cluster: str, *, listed: bool = False, stopped: bool = True) -> Money:
        """What all machines of a name cost, each for its own seconds.

        `stopped`: a machine that was stopped first cost nothing from then on.
        """
        vms = [vm for vm in self.vms if vm.cluster == cluster]
        ends = [(vm.stopped_at if stopped else None) or vm.ended_at or vm.made_at for vm in vms]
        seconds = sum(end - vm.made_at for vm, end in zip(vms, ends, strict=True))
        nodes = self.specs[vms[0].id].nodes
        return (self.rate_of(vms[0], listed=listed) * nodes).for_seconds(seconds / nodes)

    # What runs there.

    def guest(self, vm: Vm, verb: str, payload: Mapping[str, Any]) -> Any:
        """See `FakeSky`; what begins and ends is marked. A machine boots a while after it is billed."""
        self._settle(vm)
        specs = {name: _of_rank(name, spec) for name, spec in payload.get("specs", {}).items()}
        switch = None if vm.id in self.without_switch else payload.get("switch")
        stops = [vm.tasks[name] for name in payload.get("stops", {}) if name in vm.tasks]
        stops = [task for task in stops if task.stop_at is None and task.began_at and task.exit is None]
        answer = super().guest(vm, verb, {**payload, "specs": specs, "switch": switch})
        for task in stops:
            if task.exit is None and self.weather.strikes("ends-by-itself", vm.cluster):
                _, _, code = task.spec["command"]
                task.exit = exit_of(int(code), "itself", wall())
        if payload.get("starts"):  # what it begins may have ended elsewhere
            self.settle()
        else:
            self._settle(vm)
        said = answer.get("ranks", {}) if isinstance(answer, dict) else {}
        self.overbooked += [name for name, rank in said.items() if "GPUs are free" in rank["trouble"]]
        if isinstance(answer, dict) and "booted_at" in answer:
            answer["booted_at"] += BEFORE_BOOT_S + self.clock_off_s
        return answer

    def settle(self) -> None:
        """Mark what began and ended by now."""
        for vm in self.vms:
            if vm.id not in self._settled:
                self._settle(vm)

    def _settle(self, vm: Vm) -> None:
        until = min(at for at in (wall(), vm.ended_at, vm.stopped_at) if at is not None)
        if vm.ended_at is None and vm.stopped_at is None:
            vm.settle(until)
            until = vm.ended_at or vm.stopped_at or until
        dead = vm.ended_at is not None or vm.stopped_at is not None
        for name, task in vm.tasks.items():
            key = f"{vm.id} {name}"
            if task.began_at is None or (key in self._begun and key not in self.marks.open):
                continue
            if key not in self._begun:
                self._begun.add(key)
                job, attempt, rank = name.rsplit("/", 2)
                self.marks.begins(job, int(attempt), int(rank), key, task.began_at)
            if task.exit is None and dead:
                task.settle(until, vm.lease_until)
            if task.exit is not None:
                code = None if task.exit["ended_by"] == "loss" else task.exit["exit_code"]
                self.marks.ends(key, task.exit["ended_at"], code)
            elif dead:
                self.marks.ends(key, until, None)
                task.exit = exit_of(None, "its machine", until)  # its lease means nothing any more
        if vm.ended_at is not None:
            self._settled.add(vm.id)


def _of_rank(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The tasks of a gang differ: the others work on after the first, and wait for ever if it fails."""
    if name.endswith("/0") or not spec.get("command"):
        return spec
    work, seconds, code = spec["command"]
    lasts_s = FOR_EVER_S if int(code) else 1.5 * float(seconds)
    return {**spec, "command": [work, f"{lasts_s:.0f}", code]}
