"""One scheduler's line to the model of SkyPilot, its cloud and machines, on which calls fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from starburst.clouds.sky.access.ports import (
    Access,
    ClusterStatus,
    Observation,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)
from starburst.clouds.sky.agent.task_control import unknown_state
from starburst.clouds.sky.machines.naming import INTENT
from starburst.domain.money import Money
from starburst.runs.fence import NO_FENCE, LeaderFence, NotCertainError
from tests.app.virtual import wall
from tests.clouds.sky.fake import Request
from tests.clouds.sky.fake_line import SSH_S, Line
from tests.clouds.sky.fake_vm import Vm
from tests.storm.loop import LIFE, StormLoop, of_world
from tests.storm.model.cloud import ModelCloud
from tests.storm.model.cluster import STOPPED_S

T = TypeVar("T")

#: Virtual seconds of one call; so long a cloud may tell of a machine that has ended.
CALL_S, TOLD_S = (0.05, 1.5), 3600.0


class ModelLine(Line):
    """One scheduler's line to it, on which calls fail."""

    #: Asked at the last instant before what changes something.
    fence: LeaderFence = NO_FENCE

    @property
    def _model(self) -> ModelCloud:
        assert isinstance(self.sky, ModelCloud)
        return self.sky

    async def call(self, cluster: str, access: Access, verb: str, payload: Mapping[str, Any]) -> Any:
        """See `Line`."""
        model, weather, acts = self._model, self._model.weather, self.fence.certain()
        await asyncio.sleep(model.random.uniform(*CALL_S))
        if acts or verb != "exchange":  # who only renews leases needs no lead; a connection outlives no pause
            self._fenced()
        if weather.strikes("ssh-cut-before", f"{verb} {cluster}"):
            raise SkyUnreachableError(f"{cluster}: connection reset")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StormLoop)
        changes = any(payload.get(what) for what in ("specs", "starts", "stops"))
        if changes:
            await loop.may_die(lambda: weather.strikes("crash-before-call", verb))
            await loop.may_stop(lambda: weather.strikes("leader-stopped-before-call", verb), STOPPED_S)
            self._fenced()
        try:
            answer = of_world(lambda: model.guest(model.vm(cluster), verb, payload))
        except SkyUnreachableError:
            await asyncio.sleep(SSH_S)
            raise
        if changes:
            await loop.may_die(lambda: weather.strikes("crash-after-call", verb))
        if weather.strikes("ssh-answer-lost", f"{verb} {cluster}"):
            raise SkyUnreachableError(f"{cluster}: connection reset")
        if weather.strikes("answers-nonsense", f"{verb} {cluster}"):
            return weather.draw("answers-nonsense").choice(({}, [], None, {"ranks": 7}, "?"))
        if verb == "exchange" and answer["ranks"] and weather.strikes("cannot-look", cluster):
            unknown = {**unknown_state(over=False), "trouble": "Too many open files in system"}
            answer["ranks"] = dict.fromkeys(answer["ranks"], unknown)
        if weather.strikes("ssh-late", f"{verb} {cluster}"):
            await asyncio.sleep(weather.draw("ssh-late").uniform(1, 25))
        return answer

    async def rate(self, status: ClusterStatus) -> Money | None:
        """See `Line`: of one node."""
        model = self._model
        vms = model.alive(status.name)
        rate = await self._call("rate", lambda: model.rate_of(vms[0]) if vms else None)
        if rate is not None:
            model.priced.setdefault(status.name, []).append((LIFE.get(), wall()))
        return rate

    async def abort(self, request_id: str) -> None:
        """See `Line`; the request may be forgotten meanwhile."""

        def cancel() -> None:
            self._request(request_id).done.cancel()

        await self._call("abort", cancel)

    async def finished_at(self, request_id: str) -> float | None:
        """See `Line`."""
        return await self._call("finished-at", lambda: self._request(request_id).finished_at)

    def _fenced(self) -> None:
        try:
            self.fence.check()
        except NotCertainError as error:
            raise SkyUnreachableError(str(error)) from None

    def _request(self, request_id: str) -> Request:
        if request_id not in self.sky.requests:
            raise SkyNotFoundError(request_id)
        return self.sky.requests[request_id]

    async def wait(self, request_id: str) -> None:
        """See `Line`."""
        if self._model.weather.strikes("wait-cut", request_id):
            raise SkyUnreachableError("the stream of the request broke")
        await super().wait(request_id)

    async def clusters(self, *, refresh: Any = ()) -> list[ClusterStatus]:
        """See `Line`."""
        found, model = await super().clusters(refresh=refresh), self._model
        if refresh:
            return found[:-1] if found and model.weather.strikes("listing-short") else found
        model.listings.append((wall(), found))
        if model.weather.strikes("listing-empty"):
            return []
        if model.weather.strikes("listing-stale"):
            since = wall() - model.weather.draw("listing-stale").uniform(60, 900)
            return next(listed for at, listed in model.listings if at >= since)
        return found[:-1] if found and model.weather.strikes("listing-short") else found

    async def search(
        self, provider: str, region: str, labels: Sequence[tuple[str, str]]
    ) -> list[Observation] | None:
        """See `Line`."""
        found = await super().search(provider, region, labels)
        self._model.searched.setdefault(dict(labels)[INTENT], []).append(wall())
        return found

    async def _cloud(self, name: str) -> list[Vm]:
        weather = self._model.weather
        if weather.strikes("cloud-throttles", name):
            await asyncio.sleep(1.0)
            raise SkyUnreachableError("RequestLimitExceeded")
        self._model.settle()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StormLoop)
        if name in ("arm", "end"):
            await loop.may_die(lambda: weather.strikes("crash-before-call", name))
        found = await super()._cloud(name)
        if "cloud-forgets" in weather.on and not weather.is_calm:
            now, forgot = wall(), self._model.forgot
            gone = [vm.id for vm in found if vm.ended_at is not None and now > vm.ended_at + TOLD_S]
            for vm_id in gone:
                if vm_id not in forgot:
                    forgot.add(vm_id)
                    weather.note("cloud-forgets", vm_id)
            found = [vm for vm in found if vm.id not in forgot]
        self._model.answered_at = min(self._model.answered_at, wall())
        return found

    async def _call(self, name: str, effect: Callable[[], T]) -> T:
        model, weather = self._model, self._model.weather
        await asyncio.sleep(model.random.uniform(*CALL_S))
        if not model.server_up:
            raise SkyUnreachableError("the API server is down")
        if weather.strikes("sky-cut-before", name):
            raise SkyUnreachableError("connection refused")
        if weather.strikes("sky-fails", name):
            raise SkyError("an internal error of SkyPilot")
        if weather.strikes("sky-slow", name):
            await asyncio.sleep(weather.draw("sky-slow").uniform(1, 55))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StormLoop)
        writes = name in ("launch", "down", "exec", "abort")
        if writes:
            await loop.may_die(lambda: weather.strikes("crash-before-call", name))
            await loop.may_stop(lambda: weather.strikes("leader-stopped-before-call", name), STOPPED_S)
            self._fenced()
            model.marks.acts(name)
        answer = of_world(effect)
        if writes:
            await loop.may_die(lambda: weather.strikes("crash-after-call", name))
        if weather.strikes("sky-answer-lost", name):
            raise SkyUnreachableError("connection reset")
        if weather.strikes("sky-late", name):
            await asyncio.sleep(weather.draw("sky-late").uniform(1, 40))
        return answer
