"""SkyPilot, a cloud and its machines in memory and in virtual time. They live on when a controller dies."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starburst.clouds.sky.access.ports import (
    Access,
    CapacityError,
    CloudAccess,
    ClusterState,
    ClusterStatus,
    InstanceRef,
    LaunchSpec,
    Observation,
    Presence,
    SkyCredentialsError,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)
from starburst.clouds.sky.machines.keepalive import KEEPER
from starburst.domain.money import Money
from starburst.runs.supervisor.progress_report import digest
from tests.app.virtual import wall
from tests.clouds.sky.fake_vm import Task, Vm, look_at, observation

T = TypeVar("T")

#: Virtual seconds: a call, a VM's way to existing, to being up, to being gone, and ssh giving up.
CALL_S, RENT_S, BOOT_S, DOWN_S, SSH_S = 0.2, 5.0, 30.0, 4.0, 10.0


@dataclass(slots=True)
class Request:
    """What the API server was asked to do, and goes on with whoever listens."""

    name: str
    cluster: str
    done: asyncio.Task[None]
    finished_at: float | None = None


Hook = Callable[[str], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class FakeSky:
    """The API server, the cloud and the VMs; does for `SkyApi` and for `MachineTransport`."""

    root: Path
    #: Instance types that are sold out, clouds that answer nothing.
    sold_out: set[str] = field(default_factory=set)
    #: Types that boot, are billed and never get as far as to take jobs.
    broken: set[str] = field(default_factory=set)
    server_up: bool = True
    #: The cloud's own API answers, and these credentials see instances there.
    cloud_up: bool = True
    cloud_sees: bool = True
    #: The cloud can be searched by labels.
    cloud_searches: bool = True
    #: The cloud's own API ends what it is told to.
    takes_orders: bool = True
    #: What was refreshed, call by call.
    refreshed: list[tuple[str, ...]] = field(default_factory=list)
    #: Seconds that a refreshed listing takes.
    refresh_s: float = 0.0
    version: str = "0.14.1"
    #: What the credentials are good for, by cloud.
    access: dict[str, CloudAccess] = field(default_factory=dict)
    gpus: int = 4
    #: What a type is billed at; of others nobody says.
    rates: dict[str, Money] = field(default_factory=dict)
    #: VMs whose `down` returns although the cloud has not ended them yet.
    lingers_s: float = 0.0
    #: What machines say instead of the truth.
    forge: Callable[[Vm, dict[str, Any]], Any] | None = None
    vms: list[Vm] = field(default_factory=list)
    clusters_known: dict[str, LaunchSpec] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    def alive(self, cluster: str | None = None) -> list[Vm]:
        return [vm for vm in self.vms if vm.ended_at is None and cluster in (None, vm.cluster)]

    def calls_of_skypilot(self) -> int:
        """Calls that its API server had."""
        others = ("ssh", "sight", "search", "arm", "end")
        return sum(count for name, count in self.calls.items() if name not in others)

    def preempt(self) -> None:
        for vm in self.alive():
            vm.ended_at = wall()

    def lose_state(self) -> None:
        """The API server's database is gone; the instances are not."""
        self.clusters_known.clear()
        self.requests.clear()

    def strange(self, cluster: str) -> Vm:
        """Somebody launches a cluster of this name by hand."""
        self.clusters_known[cluster] = LaunchSpec(cluster, "aws/us-east-1", "c7i.large", False, (), 5)
        vm = Vm(cluster, False, 0, wall(), f"i-{len(self.vms)}")
        self.vms.append(vm)
        return vm

    def stop(self, vm: Vm) -> None:
        """`sky stop`, or the console: its disk is kept."""
        vm.settle(wall())
        vm.stopped_at = wall()

    # --- the API server ----------------------------------------------------------------------------------

    def begin(self, name: str, cluster: str, work: Coroutine[Any, Any, None]) -> str:
        id_ = f"request-{next(self._ids)}"
        task = asyncio.create_task(work)
        request = self.requests[id_] = Request(name, cluster, task)

        def finish(done: asyncio.Task[None]) -> None:
            request.finished_at = wall()
            _ = done.cancelled() or done.exception()

        task.add_done_callback(finish)
        return id_

    async def do_launch(self, spec: LaunchSpec) -> None:
        while any(r.cluster == spec.cluster and r is not self._mine() for r in self._launches()):
            await asyncio.sleep(0.1)  # SkyPilot's lock on a cluster's name
        await asyncio.sleep(RENT_S)
        if self.alive(spec.cluster):
            return
        if spec.instance_type in self.sold_out:
            raise CapacityError(f"no {spec.instance_type} in {spec.infra}")
        self.clusters_known[spec.cluster] = spec
        for node in range(spec.nodes):
            id_, until = f"i-{len(self.vms)}", wall() + 900
            made = Vm(
                spec.cluster, spec.spot, self.gpus, wall(), id_, spec.labels, lease_until=until, node=node
            )
            self.vms.append(made)
        await asyncio.sleep(BOOT_S - RENT_S)
        if spec.instance_type in self.broken:
            raise SkyError(f"{spec.cluster}: setup failed")

    async def do_down(self, cluster: str) -> None:
        if cluster not in self.clusters_known:
            raise SkyNotFoundError(cluster)
        await asyncio.sleep(DOWN_S)
        if self.lingers_s:
            self.lingers_s = 0.0
            return
        for vm in self.alive(cluster):
            if vm.tagged:
                vm.ended_at = wall()
        self.clusters_known.pop(cluster, None)

    def _mine(self) -> Request | None:
        return next((r for r in self.requests.values() if r.done is asyncio.current_task()), None)

    def _launches(self) -> list[Request]:
        launches = [r for r in self.requests.values() if r.name == "sky.launch" and not r.done.done()]
        return launches[: launches.index(mine)] if (mine := self._mine()) in launches else launches

    def statuses(self, *, refresh: Sequence[str] = ()) -> list[ClusterStatus]:
        under_way = {request.cluster for request in self._launches()}
        found = []
        for name, spec in list(self.clusters_known.items()):
            vms = self.alive(name)
            if refresh and name not in refresh:
                continue
            if refresh and not any(vm.tagged for vm in vms) and name not in under_way:
                del self.clusters_known[name]
                continue
            state = ClusterState.LAUNCHING if name in under_way else ClusterState.UP
            if vms and not vms[0].plugged and refresh:
                state = ClusterState.UNHEALTHY
            if vms and vms[0].stopped_at is not None and refresh:
                state = ClusterState.STOPPED
            launching = name in under_way
            access = None if launching else Access("10.0.0.1", "ubuntu", "key")
            refs = [InstanceRef("aws", "us-east-1", vm.id) for vm in vms if not launching]
            more = [Access(f"10.0.0.{node + 1}", "ubuntu", "key") for node in range(1, spec.nodes)]
            all_of = tuple(f"10.0.0.{node + 1}" for node in range(spec.nodes))
            made_at = vms[0].made_at if vms else 0.0
            labels = () if launching else spec.labels  # SkyPilot has not settled on a machine
            at = refs[0] if refs else None
            known = (name, state, made_at, spec.spot, labels, access)
            workers = () if launching else tuple(more)
            found.append(
                ClusterStatus(
                    *known, at, spec, spec.nodes, workers, tuple(refs[1:]), () if launching else all_of
                )
            )
        return found

    # --- the machines ------------------------------------------------------------------------------------

    def vm(self, cluster: str) -> Vm:
        cluster, _, node = cluster.partition("-node")
        for vm in self.alive(cluster):
            vm.settle(wall())
        vms = [vm for vm in self.alive(cluster) if vm.node == int(node or 0)]
        if not vms or not vms[0].plugged or vms[0].stopped_at is not None:
            raise SkyUnreachableError(f"{cluster}: timed out")
        return vms[0]

    def guest(self, vm: Vm, verb: str, payload: Mapping[str, Any]) -> Any:
        now = wall()
        vm.settle(now)
        if verb == "retire":
            vm.shut_down(now)
            return {"armed": True}
        if verb == "uploads":
            self.calls["uploads"] += 1
            return {"left": "2 files wait for their upload" if now < vm.uploads_until else ""}
        if payload.get("switch") is not None:
            vm.switch_s = payload["switch"]["after_s"]
        if payload.get("lease_s") is not None and now < vm.lease_until:
            vm.lease_until = now + payload["lease_s"]
        for name, spec in payload.get("specs", {}).items():
            vm.tasks.setdefault(name, Task(spec))
        for name, _grace in payload.get("stops", {}).items():
            task = vm.tasks.setdefault(name, Task({}))
            task.stop_at = task.stop_at or now + 1.0
        vm.settle(now)
        starts = [name for name in payload.get("starts", ()) if name in vm.tasks]
        troubles = {name: vm.start(vm.tasks[name], now) for name in starts}
        ranks = {name: look_at(vm.tasks.get(name), seen) for name, seen in payload.get("look", {}).items()}
        for name, why in troubles.items():
            ranks[name]["trouble"] = why
        for name, known in payload.get("hear", {}).items():
            said = vm.tasks[name].report if name in vm.tasks else None
            changed = said is not None and digest(said) != known
            ranks[name]["report"] = base64.b64encode(said).decode() if said and changed else None
        who = {"host": f"host-{vm.cluster}", "address": "10.0.0.1"}
        ends = {"lapsed": now >= vm.lease_until, "kept": vm.kept, "armed": vm.switch_s is not None}
        answer = {"booted_at": vm.made_at, "ranks": ranks, **ends, **who}
        return answer if self.forge is None else self.forge(vm, answer)


async def _nothing(_what: str) -> None:
    """The hook of a life without a crash."""


@dataclass(slots=True)
class Line:
    """One controller's line to a FakeSky. `hook` is awaited before and after every effect."""

    sky: FakeSky
    hook: Hook = _nothing

    async def launch(self, spec: LaunchSpec) -> str:
        work = lambda: self.sky.begin("sky.launch", spec.cluster, self.sky.do_launch(spec))  # noqa: E731
        return await self._call("launch", work)

    async def down(self, cluster: str) -> str:
        return await self._call(
            "down", lambda: self.sky.begin("sky.down", cluster, self.sky.do_down(cluster))
        )

    async def exec(self, cluster: str, name: str, run: str) -> str:
        async def work() -> None:
            await asyncio.sleep(1.0)
            vm = self.sky.vm(cluster)
            assert name == KEEPER
            vm.keepers += 1
            vm.kept = True

        return await self._call("exec", lambda: self.sky.begin("sky.exec", cluster, work()))

    async def wait(self, request_id: str) -> None:
        await self.hook("before wait")
        request = self.sky.requests.get(request_id)
        if request is None:
            raise SkyNotFoundError(request_id)
        await asyncio.wait([request.done])
        if not self.sky.server_up:
            raise SkyUnreachableError("the API server is down")
        if request.done.cancelled():
            raise SkyError("the request was cancelled")
        error = request.done.exception()
        if error is not None:
            raise error
        await self.hook("after wait")

    async def abort(self, request_id: str) -> None:
        await self._call("abort", self.sky.requests[request_id].done.cancel)

    async def launching(self, cluster: str) -> list[str]:
        return await self._call(
            "launching",
            lambda: [
                id_
                for id_, r in self.sky.requests.items()
                if (r.name, r.cluster) == ("sky.launch", cluster) and not r.done.done()
            ],
        )

    async def finished_at(self, request_id: str) -> float | None:
        return await self._call("finished-at", lambda: self.sky.requests[request_id].finished_at)

    async def clusters(self, *, refresh: Sequence[str] = ()) -> list[ClusterStatus]:
        name = "refresh" if refresh else "status"
        if refresh:
            self.sky.refreshed.append(tuple(refresh))
            await asyncio.sleep(self.sky.refresh_s)
        return await self._call(name, lambda: self.sky.statuses(refresh=refresh))

    async def sight(self, at: InstanceRef) -> Observation:
        found = [vm for vm in await self._cloud("sight") if vm.id == at.instance]
        return observation(found[0]) if found else Observation(at, Presence.ABSENT)

    async def search(
        self, provider: str, region: str, labels: Sequence[tuple[str, str]]
    ) -> list[Observation] | None:
        vms = await self._cloud("search")
        if not self.sky.cloud_searches:
            return None
        return [observation(vm) for vm in vms if set(labels) <= set(vm.labels)]

    async def arm(self, at: InstanceRef) -> bool:
        for vm in await self._cloud("arm"):
            vm.ends_when_shut_down = vm.ends_when_shut_down or vm.id == at.instance
        return True

    async def end(self, at: InstanceRef) -> None:
        vms = await self._cloud("end")
        if not self.sky.takes_orders:
            raise SkyCredentialsError("not authorized to perform: ec2:TerminateInstances")
        for vm in vms:
            if vm.id == at.instance:
                vm.ended_at = vm.ended_at or wall()

    async def _cloud(self, name: str) -> list[Vm]:
        """What the cloud has, as far as these credentials see it."""
        self.sky.calls[name] += 1
        await self.hook(f"before {name}")
        await asyncio.sleep(CALL_S)
        if not self.sky.cloud_up:
            raise SkyUnreachableError("the cloud answers 500")
        for vm in self.sky.vms:
            vm.settle(wall())
        return self.sky.vms if self.sky.cloud_sees else []

    async def rate(self, status: ClusterStatus) -> Money | None:
        return await self._call("rate", lambda: self.sky.rates.get(status.launched.instance_type))

    async def address(self) -> str:
        return "http://127.0.0.1:46580"

    async def health(self) -> str:
        return await self._call("health", lambda: self.sky.version)

    async def check(self, clouds: Sequence[str]) -> dict[str, CloudAccess]:
        nothing = CloudAccess(frozenset(), {})
        return await self._call(
            "check", lambda: {cloud: self.sky.access.get(cloud, nothing) for cloud in clouds}
        )

    async def call(self, cluster: str, access: Access, verb: str, payload: Mapping[str, Any]) -> Any:
        self.sky.calls["ssh"] += 1
        await self.hook(f"before {verb}")
        await asyncio.sleep(CALL_S)
        try:
            answer = self.sky.guest(self.sky.vm(cluster), verb, payload)
        except SkyUnreachableError:
            await asyncio.sleep(SSH_S)
            raise
        await self.hook(f"after {verb}")
        return answer

    async def send(self, cluster: str, access: Access, local: Path, remote: str) -> None:
        target = self.sky.root / cluster / remote.replace("~/", "")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(local, target)

    def forget(self, cluster: str) -> None:
        """No keys here."""

    async def fetch(self, cluster: str, access: Access, remote: str, local: Path) -> None:
        self.sky.vm(cluster)
        source = self.sky.root / cluster / remote.replace("~/", "")
        if source.exists():
            shutil.rmtree(local, ignore_errors=True)
            shutil.copytree(source, local)

    async def _call(self, name: str, effect: Callable[[], T]) -> T:
        self.sky.calls[name] += 1
        await self.hook(f"before {name}")
        await asyncio.sleep(CALL_S)
        if not self.sky.server_up:
            raise SkyUnreachableError("the API server is down")
        answer = effect()
        await self.hook(f"after {name}")
        return answer
