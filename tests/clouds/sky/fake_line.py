"""A controller's line to a FakeSky: what it asks of SkyPilot, of the cloud and of machines."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from starburst.clouds.sky.access.ports import (
    Access,
    CloudAccess,
    CloudRefusesError,
    ClusterStatus,
    InstanceRef,
    LaunchSpec,
    Observation,
    Presence,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)
from starburst.clouds.sky.machines.keepalive import KEEPER
from starburst.domain.money import Money
from tests.app.virtual import wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_vm import Vm, observation

T = TypeVar("T")
Hook = Callable[[str], Coroutine[Any, Any, None]]

#: Virtual seconds: a call, and ssh giving up.
CALL_S, SSH_S = 0.2, 10.0


async def nothing(_what: str) -> None:
    """The hook of a life without a crash."""


@dataclass(slots=True)
class Line:
    """One controller's line to a FakeSky. `hook` is awaited before and after every effect."""

    sky: FakeSky
    hook: Hook = nothing

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
        return replace(observation(found[0]), at=at) if found else Observation(at, Presence.ABSENT)

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
            raise CloudRefusesError("UnauthorizedOperation: ec2:TerminateInstances")
        for vm in vms:
            if vm.id == at.instance or (at.name and vm.cluster == at.name):
                vm.ended_at = vm.ended_at or wall()

    async def _cloud(self, name: str) -> list[Vm]:
        """What the cloud has, as far as these credentials see it."""
        self.sky.calls[name] += 1
        await self.hook(f"before {name}")
        await asyncio.sleep(CALL_S)
        if not self.sky.cloud_up:
            raise SkyUnreachableError("the cloud answers 500")
        now = wall()
        for vm in self.sky.alive():
            vm.settle(now)
        told = [vm for vm in self.sky.vms if now <= (vm.ended_at or now) + self.sky.cloud_tells_s]
        return told if self.sky.cloud_sees else []

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
            vm = self.sky.vm(cluster)
            if self.sky.keys.setdefault(cluster, vm.id) != vm.id:
                raise SkyError(f"{cluster}: Host key verification failed")
            if vm.agent_fails:
                raise SkyError(f"{cluster}: the agent failed: {vm.agent_fails}")
            answer = self.sky.guest(vm, verb, payload)
        except SkyUnreachableError:
            await asyncio.sleep(SSH_S)
            raise
        await self.hook(f"after {verb}")
        return answer

    async def send(self, cluster: str, access: Access, local: Path, remote: str) -> None:
        await self.hook("before send")
        target = self.sky.root / cluster / remote.replace("~/", "")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(local, target)

    def forget(self, cluster: str) -> None:
        self.sky.keys.pop(cluster, None)

    async def fetch(self, cluster: str, access: Access, remote: str, local: Path) -> None:
        await self.hook("before fetch")
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
