"""SkyPilot, a cloud and its machines in memory and in virtual time. They live on when a controller dies."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
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
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)
from starburst.domain.money import Money
from starburst.runs.supervisor.progress_report import digest
from tests.app.virtual import wall
from tests.clouds.sky.fake_vm import Task, Vm, look_at

T = TypeVar("T")

#: Virtual seconds: a VM's way to existing, to being up, and to being gone.
RENT_S, BOOT_S, DOWN_S = 5.0, 30.0, 4.0


@dataclass(slots=True)
class Request:
    """What the API server was asked to do, and goes on with whoever listens."""

    name: str
    cluster: str
    done: asyncio.Task[None]
    finished_at: float | None = None


@dataclass(slots=True)
class FakeSky:
    """The API server, the cloud and the VMs, which `Line` (fake_line.py) talks to."""

    root: Path
    #: Instance types that are sold out, clouds that answer nothing.
    sold_out: set[str] = field(default_factory=set)
    #: Types that boot, are billed and never get as far as to take jobs.
    broken: set[str] = field(default_factory=set)
    #: Types that the cloud refuses to rent, which SkyPilot notices late: it lists the cluster meanwhile.
    refused: set[str] = field(default_factory=set)
    server_up: bool = True
    #: The cloud's own API answers, and these credentials see instances there.
    cloud_up: bool = True
    cloud_sees: bool = True
    #: So many seconds it tells of what has ended.
    cloud_tells_s: float = inf
    #: The cloud can be searched by labels.
    cloud_searches: bool = True
    #: The cloud ends instances one by one, as AWS does; else the whole cluster of one.
    ends_alone: bool = True
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
    #: By how much the clocks of machines are off.
    clock_off_s: float = 0.0
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
    #: The machine whose key is known for a name; another one is not talked to under that name.
    keys: dict[str, str] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    def alive(self, cluster: str | None = None) -> list[Vm]:
        there = [vm for vm in self.vms if vm.ended_at is None]
        return there if cluster is None else [vm for vm in there if vm.cluster == cluster]

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
        if vm.ended_at is None:
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
        if spec.instance_type in self.refused:
            await asyncio.sleep(BOOT_S)
            raise SkyError("AuthFailure: the token has expired")
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
            login = Access("", "ubuntu", "key")
            refused = spec.instance_type in self.refused
            access = None if launching or refused else Access("10.0.0.1", "ubuntu", "key")
            within = "" if self.ends_alone else name
            refs = [InstanceRef("aws", "us-east-1", vm.id, within) for vm in vms if not launching]
            more = [Access(f"10.0.0.{node + 1}", "ubuntu", "key") for node in range(1, spec.nodes)]
            all_of = tuple(f"10.0.0.{node + 1}" for node in range(spec.nodes))
            made_at = vms[0].made_at if vms else 0.0
            labels = () if launching else spec.labels  # SkyPilot has not settled on a machine
            at = refs[0] if refs else None
            known = (name, state, made_at, spec.spot, labels, access)
            workers = () if launching else tuple(more)
            found.append(
                ClusterStatus(
                    *known, at, spec, spec.nodes, workers, tuple(refs[1:]), () if launching else all_of, login
                )
            )
        return found

    # --- the machines ------------------------------------------------------------------------------------

    def vm(self, cluster: str) -> Vm:
        cluster, _, address = cluster.partition("-boot-")
        cluster, _, node = cluster.partition("-node")
        now = wall()
        for vm in self.alive(cluster):
            vm.settle(now)
        vms = [
            vm
            for vm in self.alive(cluster)
            if (vm.address == address if address else vm.node == int(node or 0))
        ]
        if not vms or not vms[0].plugged or vms[0].stopped_at is not None:
            raise SkyUnreachableError(f"{cluster}: timed out")
        return vms[0]

    def guest(self, vm: Vm, verb: str, payload: Mapping[str, Any]) -> Any:
        now = wall()
        vm.settle(now)
        if verb == "retire":
            vm.shut_down(now)
            return {"armed": True}
        if verb == "pull":
            fresh = {
                one["image"]: one["logins"] for one in payload["images"] if one["image"] not in vm.images
            }
            vm.images |= dict.fromkeys(fresh, 30.0)
            vm.logins |= fresh
            return {"begun": len(fresh)}
        if verb == "uploads":
            self.calls["uploads"] += 1
            return {"left": "2 files wait for their upload" if now < vm.uploads_until else ""}
        if verb == "confirm":
            self.calls["confirm"] += 1
            busy = now < vm.busy_until
            return {"left": "model.pt still changes" if busy else vm.unconfirmed, "busy": busy}
        if payload.get("switch") is not None:
            vm.switch_s = payload["switch"]["after_s"]
        if payload.get("lease_s") is not None and now < vm.lease_until and vm.renews:
            vm.lease_until = now + payload["lease_s"]
        for name, spec in payload.get("specs", {}).items():
            vm.tasks.setdefault(name, Task(spec))
        for name, _grace in payload.get("stops", {}).items():
            task = vm.tasks.setdefault(name, Task({}))
            task.stop_at = task.stop_at or now + 1.0
        vm.settle(now)
        starts = [name for name in payload.get("starts", ()) if name in vm.tasks]
        troubles = {name: vm.start(vm.tasks[name], now) for name in starts}
        looks = payload.get("look", {})
        ranks = {name: look_at(vm.tasks.get(name), seen, vm.waits) for name, seen in looks.items()}
        for one in ranks.values():
            if one["exit"] is not None:
                one["exit"] = {**one["exit"], "ended_at": one["exit"]["ended_at"] + self.clock_off_s}
        for name, why in troubles.items():
            ranks[name]["trouble"] = why
        for name, known in payload.get("hear", {}).items():
            said = vm.tasks[name].report if name in vm.tasks else None
            changed = said is not None and digest(said) != known
            ranks[name]["report"] = base64.b64encode(said).decode() if said and changed else None
        who = {"images": vm.images, "host": f"host-{vm.cluster}", "address": "10.0.0.1"} | (
            {"together": vm.together} if vm.together else {}
        )
        ends = {"lapsed": now >= vm.lease_until, "kept": vm.kept, "armed": vm.switch_s is not None}
        ends |= {"trouble": vm.trouble, "renewed": vm.renews or payload.get("lease_s") is None}
        answer = {"booted_at": vm.made_at, "now": now + self.clock_off_s, "ranks": ranks, **ends, **who}
        return answer if self.forge is None else self.forge(vm, answer)
