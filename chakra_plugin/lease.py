"""Leader election with a Lease, as Kubernetes' own components do it: of many processes one at most leads.

The rules are those of client-go's leaderelection package. What a process knows of another's clock is nothing:
a follower counts the Lease's duration on its own monotonic clock, from the moment at which it saw the Lease
change last. The holder counts its shorter deadline from the moment at which it *sent* the last renewal that
succeeded. The one begins after the server's write and the other before it, so leaderships do not overlap as
long as the rates of the clocks differ by less than duration : deadline. Somebody who deletes the Lease by
hand breaks this; nothing can mend that.

A leader's call may still arrive after its time: what it writes has to be guarded by the server anyhow, as a
binding is.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import structlog

from starburst.kube.api import Api
from starburst.kube.errors import ApiError, UnreachableError
from starburst.kube.resources import LEASES, Object

log = structlog.get_logger()

#: A follower looks again after between one and 1 + JITTER retry periods (client-go's JitterFactor).
JITTER = 1.2

Run = Callable[[Callable[[], bool]], Awaitable[None]]


class LeaseLostError(Exception):
    """The Lease could not be renewed in time, or somebody else has it; what ran under it was cancelled."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of leader election; the defaults are those of kube-scheduler.

    Raises:
        ValueError: duration > deadline > (1 + JITTER) × retry does not hold; a leader could lose its Lease
            although nothing is wrong.
    """

    #: How long after a Lease's last change it is left to its holder; whole seconds, as the API has it.
    duration_s: int = 15
    #: How long after its last renewal a holder leads.
    deadline_s: float = 10.0
    #: Between tries.
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration_s > self.deadline_s > (1 + JITTER) * self.retry_s > 0:
            raise ValueError(
                f"lease: duration {self.duration_s} s > renew deadline {self.deadline_s} s > "
                f"{1 + JITTER} × retry period {self.retry_s} s must hold"
            )


TIMING = Timing()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that wants a Lease."""

    namespace: str
    name: str
    #: Of this process alone, not only of its host.
    identity: str
    timing: Timing = TIMING

    @property
    def lease(self) -> str:
        """Its name for people."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease, and when this version of it was seen first, by the observer's monotonic clock."""

    lease: Object
    at: float

    @property
    def version(self) -> str:
        """Its resource version."""
        return str(self.lease["metadata"]["resourceVersion"])

    @property
    def holder(self) -> str:
        """Identity of who has it; "" if nobody has."""
        return str(self._spec("holderIdentity") or "")

    @property
    def expires_at(self) -> float:
        """From when on it may be taken from its holder."""
        return self.at + float(self._spec("leaseDurationSeconds") or 0)

    def _spec(self, field: str) -> Any:
        return (self.lease.get("spec") or {}).get(field)


@dataclass(frozen=True, slots=True)
class Acquire:
    """Nobody has it, or nobody any more: take it."""


@dataclass(frozen=True, slots=True)
class Renew:
    """It is ours: say so again."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody else has it, until this moment at least."""

    until: float


def observe(before: Seen | None, lease: Object | None, now: float) -> Seen | None:
    """What is known after a look; a Lease that did not change is as old as before."""
    if lease is None:
        return None
    seen = Seen(lease, now)
    return before if before is not None and before.version == seen.version else seen


def decide(seen: Seen | None, identity: str, now: float) -> Acquire | Renew | Wait:
    """What to do about a Lease."""
    if seen is None or not seen.holder:
        return Acquire()
    if seen.holder == identity:
        return Renew()
    return Acquire() if now > seen.expires_at else Wait(seen.expires_at)


def held(seen: Seen | None, by: Candidate, wall: str) -> Object:
    """The Lease to write to take it or to renew it; the times in it are for people to read."""
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


def released(seen: Seen, wall: str) -> Object:
    """The Lease to write when we are done: anybody may take it at once."""
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
) -> None:
    """Wait until this process holds the Lease, then do `run(still_leading)` for as long as it does.

    `identity` must be of this process alone, not only of its host. `still_leading()` turns false by the
    clock, the moment at which the last renewal is `timing.deadline_s` old, whatever else hangs. When run has
    ended, also because lead is cancelled, the Lease is given back.

    Raises:
        LeaseLostError: the Lease was lost; run was cancelled and has ended.
        Exception: whatever run raises.
    """
    who = Candidate(namespace, name, identity, timing)
    elector = _Elector(api, who, clock)
    draw = draw or random.Random()
    while not elector.leading():
        await elector.look()
        if not elector.leading():
            await sleep(draw.uniform(timing.retry_s, (1 + JITTER) * timing.retry_s))
    log.info("leading", lease=who.lease, identity=identity)
    keeper = asyncio.ensure_future(elector.keep(sleep))
    term = asyncio.ensure_future(run(elector.leading))
    try:
        await asyncio.wait({term, keeper}, return_when=asyncio.FIRST_COMPLETED)
        lost = not term.done()
    finally:
        # Renewed until run is over: nobody else may begin while it puts things away.
        term.cancel()
        await asyncio.gather(term, return_exceptions=True)
        elector.stop()
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await elector.release()
    if lost:
        raise LeaseLostError(f"lease {who.lease}: not renewed for {timing.deadline_s} s, or taken")
    term.result()


class _Elector:
    """What one process knows of the Lease, and until when it leads."""

    def __init__(self, api: Api, who: Candidate, clock: Callable[[], float]) -> None:
        self._api = api
        self._who = who
        self._clock = clock
        self._seen: Seen | None = None
        self._until = -math.inf
        self._stopped = False

    def leading(self) -> bool:
        """Whether the Lease is ours beyond doubt."""
        return not self._stopped and self._clock() < self._until

    def stop(self) -> None:
        """Lead no more."""
        self._stopped = True

    async def keep(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Renew for as long as that works."""
        while self.leading():
            await sleep(min(self._who.timing.retry_s, max(0.0, self._until - self._clock())))
            if self.leading():
                await self.look()

    async def look(self) -> None:
        """Read the Lease, and take or renew it if we may; trouble is logged, the next look may do better."""
        limit_s = self._who.timing.deadline_s / 2  # so that a connection that hangs leaves time for another
        if self.leading():
            limit_s = min(limit_s, self._until - self._clock())
        try:
            await asyncio.wait_for(self._look(), limit_s)
        except (ApiError, UnreachableError, asyncio.TimeoutError) as error:
            if not (isinstance(error, ApiError) and error.status == 409):  # another one was faster
                log.warning("lease-trouble", lease=self._who.lease, error=repr(error))

    async def _look(self) -> None:
        await self._read()
        todo = decide(self._seen, self._who.identity, self._clock())
        if isinstance(todo, Wait):
            self._until = -math.inf  # if it was ours, it is no more
            return
        sent_at = self._clock()
        await self._write(held(self._seen, self._who, _wall()))
        self._until = sent_at + self._who.timing.deadline_s

    async def release(self) -> None:
        """Give it back, if it is ours; a try is enough, since it runs out by itself."""
        try:
            await asyncio.wait_for(self._release(), self._who.timing.deadline_s / 2)
        except (ApiError, UnreachableError, asyncio.TimeoutError) as error:
            log.warning("lease-not-released", lease=self._who.lease, error=repr(error))

    async def _release(self) -> None:
        await self._read()
        if self._seen is not None and self._seen.holder == self._who.identity:
            await self._write(released(self._seen, _wall()))

    async def _read(self) -> None:
        lease = await self._api.find(LEASES, self._who.namespace, self._who.name)
        self._seen = observe(self._seen, lease, self._clock())

    async def _write(self, lease: Object) -> None:
        """Create it, or update it if it is still of the version that we know."""
        if self._seen is None:
            lease = await self._api.create(LEASES, self._who.namespace, lease)
        else:
            lease = await self._api.call("PUT", LEASES.path(self._who.namespace, self._who.name), body=lease)
        self._seen = observe(self._seen, lease, self._clock())


def _wall() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
