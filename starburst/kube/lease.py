"""Leader election with a Lease, as in Kubernetes' own components: at most one of several processes leads.

The rules are those of client-go's leaderelection package. No process relies on the clock of another one: a
follower counts the Lease's duration on its own monotonic clock, from the moment at which it last saw the
Lease change. The holder counts its shorter deadline from the moment at which it *sent* the last successful
renewal. The follower's interval starts after the server's write and the holder's before it, so leaderships do
not overlap as long as the ratio of the clock rates is less than duration : deadline. Deleting a Lease by hand
breaks this guarantee.

A call of a former leader may still arrive after its deadline, so the server must validate each write, as it
does for a binding.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import structlog

from starburst.aio import answer_within, running
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError, LeaseLostError
from starburst.kube.resources import LEASES, Object

log = structlog.get_logger()

#: A follower reads the Lease again after 1 to 1 + JITTER retry periods (client-go's JitterFactor).
JITTER = 1.2

#: What the leader does, given a function that says whether it still leads.
Run = Callable[[Callable[[], bool]], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of leader election; the defaults are those of kube-scheduler.

    Raises:
        ValueError: duration > deadline > (1 + JITTER) × retry does not hold; a leader could lose its Lease
            although nothing is wrong.
    """

    #: Seconds after a Lease's last change for which no other process takes it; an integer in the API.
    duration_s: int = 15
    #: Seconds after its last renewal for which a holder leads.
    deadline_s: float = 10.0
    #: Seconds between tries.
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration_s > self.deadline_s > (1 + JITTER) * self.retry_s > 0:
            raise ValueError(
                f"lease: duration {self.duration_s} s > renew deadline {self.deadline_s} s > "
                f"{1 + JITTER} × retry period {self.retry_s} s must hold"
            )


TIMING = Timing()


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """A process that competes for a Lease."""

    namespace: str
    name: str
    #: Unique to this process, not only to its host.
    identity: str
    timing: Timing = TIMING

    @property
    def lease(self) -> str:
        """Name of the Lease in logs."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A Lease, and the time at which this version was first seen, by the observer's monotonic clock."""

    lease: Object
    at: float

    @property
    def version(self) -> str:
        """Resource version."""
        return str(self.lease["metadata"]["resourceVersion"])

    @property
    def holder(self) -> str:
        """Identity of the holder, "" if there is none."""
        return str(self._spec("holderIdentity") or "")

    @property
    def expires_at(self) -> float:
        """The time from which another process may take it, by the observer's clock."""
        return self.at + float(self._spec("leaseDurationSeconds") or 0)

    def _spec(self, field: str) -> Any:
        return (self.lease.get("spec") or {}).get(field)


@dataclass(frozen=True, slots=True)
class Acquire:
    """The Lease has no holder, or has expired: take it."""


@dataclass(frozen=True, slots=True)
class Renew:
    """The Lease is ours: renew it."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Another process holds the Lease, at least until this time."""

    until: float


def observe(before: ObservedLease | None, lease: Object | None, now: float) -> ObservedLease | None:
    """The observation after a read; an unchanged Lease keeps the time of its first observation."""
    if lease is None:
        return None
    seen = ObservedLease(lease, now)
    return before if before is not None and before.version == seen.version else seen


def decide(seen: ObservedLease | None, identity: str, now: float) -> Acquire | Renew | Follow:
    """Whether to take the Lease, renew it or wait."""
    if seen is None or not seen.holder:
        return Acquire()
    if seen.holder == identity:
        return Renew()
    return Acquire() if now > seen.expires_at else Follow(seen.expires_at)


def held(seen: ObservedLease | None, by: LeaseCandidate, wall: str) -> Object:
    """The body that takes or renews the Lease; its times are informative only."""
    ours = {
        "holderIdentity": by.identity,
        "leaseDurationSeconds": by.timing.duration_s,
        "renewTime": wall,
    }
    if seen is None:
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": by.name, "namespace": by.namespace},
            "spec": {**ours, "acquireTime": wall, "leaseTransitions": 0},
        }
    spec = {**(seen.lease.get("spec") or {}), **ours}
    if seen.holder != by.identity:
        spec["acquireTime"] = wall
        spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1
    return {**seen.lease, "spec": spec}


def released(seen: ObservedLease, wall: str) -> Object:
    """The body that releases the Lease: any process may take it at once."""
    spec = {**seen.lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": wall}
    return {**seen.lease, "spec": spec}


async def lead(
    api: Api,
    *,
    namespace: str,
    name: str,
    identity: str,
    run: Run,
    timing: Timing = TIMING,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    draw: random.Random | None = None,
    heard: Callable[[str], None] = lambda _holder: None,
) -> None:
    """Wait until this process holds the Lease, then execute `run(still_leading)` for as long as it does.

    `heard` is given the identity of another process whenever that is seen to hold the Lease.

    `identity` must be unique to this process, not only to its host. `still_leading()` depends on the clock
    only: it turns false when the last renewal is `timing.deadline_s` old, even if a call hangs. When `run`
    has ended, also because `lead` is cancelled, the Lease is released.

    Raises:
        LeaseLostError: the Lease was lost; run was cancelled and has ended.
        Exception: what `run` raised.
    """
    who = LeaseCandidate(namespace, name, identity, timing)
    elector = _Elector(api, who, clock, heard)
    draw = draw or random.Random()
    while not elector.leading():
        await elector.look()
        if not elector.leading():
            await sleep(draw.uniform(timing.retry_s, (1 + JITTER) * timing.retry_s))
    log.info("leading", lease=who.lease, identity=identity)
    try:
        async with running(elector.keep(sleep), "lease") as keeper:
            try:
                async with running(run(elector.leading), "term") as term:
                    await asyncio.wait({term, keeper}, return_when=asyncio.FIRST_COMPLETED)
                    lost = not term.done()
            finally:  # renewed until run has ended: no other process may lead while it cleans up
                elector.stop()
    finally:
        await elector.release()
    if lost:
        raise LeaseLostError(f"lease {who.lease}: not renewed for {timing.deadline_s} s, or taken")
    term.result()


class _Elector:
    """One process's observation of the Lease, and the time until which it leads."""

    def __init__(
        self, api: Api, who: LeaseCandidate, clock: Callable[[], float], heard: Callable[[str], None]
    ) -> None:
        self._api = api
        self._heard = heard
        self._who = who
        self._clock = clock
        self._seen: ObservedLease | None = None
        self._until = -math.inf
        self._stopped = False

    def leading(self) -> bool:
        """Whether the Lease is guaranteed to be ours."""
        return not self._stopped and self._clock() < self._until

    def stop(self) -> None:
        """Stop leading."""
        self._stopped = True

    async def keep(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Renew until the deadline passes without a renewal, or until `stop`."""
        while self.leading():
            await sleep(min(self._who.timing.retry_s, max(0.0, self._until - self._clock())))
            if self.leading():
                await self.look()

    async def look(self) -> None:
        """Read the Lease, and take or renew it if permitted; errors are logged, not raised."""
        limit_s = self._who.timing.deadline_s / 2  # after a call that hangs there is time for another one
        if self.leading():
            limit_s = min(limit_s, self._until - self._clock())
        try:
            with answer_within(limit_s):
                await self._look()
        except (ApiError, ApiUnreachableError, TimeoutError) as error:
            if not (isinstance(error, ApiError) and error.status == 409):  # another process was faster
                log.warning("lease-trouble", lease=self._who.lease, error=repr(error))

    async def _look(self) -> None:
        await self._read()
        todo = decide(self._seen, self._who.identity, self._clock())
        if isinstance(todo, Follow):
            self._until = -math.inf
            assert self._seen is not None
            self._heard(self._seen.holder)
            return
        sent_at = self._clock()
        await self._write(held(self._seen, self._who, _wall()))
        self._until = sent_at + self._who.timing.deadline_s

    async def release(self) -> None:
        """Release the Lease if it is ours; there is one try, since the Lease expires by itself."""
        try:
            with answer_within(self._who.timing.deadline_s / 2):
                await self._release()
        except (ApiError, ApiUnreachableError, TimeoutError) as error:
            log.warning("lease-not-released", lease=self._who.lease, error=repr(error))

    async def _release(self) -> None:
        await self._read()
        if self._seen is not None and self._seen.holder == self._who.identity:
            await self._write(released(self._seen, _wall()))

    async def _read(self) -> None:
        lease = await self._api.find(LEASES, self._who.namespace, self._who.name)
        self._seen = observe(self._seen, lease, self._clock())

    async def _write(self, lease: Object) -> None:
        """Create the Lease, or update the version that was last seen."""
        if self._seen is None:
            lease = await self._api.create(LEASES, self._who.namespace, lease)
        else:
            lease = await self._api.call("PUT", LEASES.path(self._who.namespace, self._who.name), body=lease)
        self._seen = observe(self._seen, lease, self._clock())


def _wall() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
