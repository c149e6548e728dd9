"""Leader election with a Lease, as Kubernetes' own components do it: of many processes one at most leads.

The rules are those of client-go's leaderelection package. No process relies on the clock of another one: a
follower counts the Lease's duration on its own monotonic clock, from the moment at which it saw the Lease
change last. The holder counts its shorter deadline from the moment at which it *sent* the last renewal that
succeeded. The one begins after the server's write and the other before it, so leaderships do not overlap as
long as the rates of the clocks differ by less than duration : deadline. A Lease that is deleted by hand
breaks this guarantee.

A call of a former leader may still arrive after its deadline: the server has to guard what it writes in any
case, as it does for a binding.
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
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.resources import LEASES, Object

log = structlog.get_logger()

#: A follower looks again after between one and 1 + JITTER retry periods (client-go's JitterFactor).
JITTER = 1.2

#: What the leader does, given a function that says whether it still leads.
Run = Callable[[Callable[[], bool]], Coroutine[Any, Any, None]]


class LeaseLostError(Exception):
    """The Lease was not renewed in time, or another process holds it; what ran under it was cancelled."""


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
    """A process that wants to hold a Lease."""

    namespace: str
    name: str
    #: Unique to this process, not only to its host.
    identity: str
    timing: Timing = TIMING

    @property
    def lease(self) -> str:
        """Name for people."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease, and when this version of it was seen first, by the observer's monotonic clock."""

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
        """When another process may take it, by the observer's clock."""
        return self.at + float(self._spec("leaseDurationSeconds") or 0)

    def _spec(self, field: str) -> Any:
        return (self.lease.get("spec") or {}).get(field)


@dataclass(frozen=True, slots=True)
class Acquire:
    """The Lease has no holder, or its holder's time has passed: take it."""


@dataclass(frozen=True, slots=True)
class Renew:
    """The Lease is ours: renew it."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Another process holds the Lease, until this moment at least."""

    until: float


def observe(before: Seen | None, lease: Object | None, now: float) -> Seen | None:
    """The knowledge after a look; a Lease that did not change is as old as before."""
    if lease is None:
        return None
    seen = Seen(lease, now)
    return before if before is not None and before.version == seen.version else seen


def decide(seen: Seen | None, identity: str, now: float) -> Acquire | Renew | Follow:
    """What to do about a Lease."""
    if seen is None or not seen.holder:
        return Acquire()
    if seen.holder == identity:
        return Renew()
    return Acquire() if now > seen.expires_at else Follow(seen.expires_at)


def held(seen: Seen | None, by: Candidate, wall: str) -> Object:
    """The body that takes or renews the Lease; the times in it are for people to read."""
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
    """The body that gives the Lease back: any process may take it at once."""
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

    `identity` must be unique to this process, not only to its host. `still_leading()` turns false by the
    clock, at the moment at which the last renewal is `timing.deadline_s` old, whatever else hangs. When `run`
    has ended, also because `lead` is cancelled, the Lease is given back.

    Raises:
        LeaseLostError: the Lease was lost; run was cancelled and has ended.
        Exception: what `run` raised.
    """
    who = Candidate(namespace, name, identity, timing)
    elector = _Elector(api, who, clock)
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
            finally:  # renewed until run has ended: no other process may begin while it cleans up
                elector.stop()
    finally:
        await elector.release()
    if lost:
        raise LeaseLostError(f"lease {who.lease}: not renewed for {timing.deadline_s} s, or taken")
    term.result()


class _Elector:
    """One process's knowledge of the Lease, and until when it leads."""

    def __init__(self, api: Api, who: Candidate, clock: Callable[[], float]) -> None:
        self._api = api
        self._who = who
        self._clock = clock
        self._seen: Seen | None = None
        self._until = -math.inf
        self._stopped = False

    def leading(self) -> bool:
        """Whether the Lease is surely ours."""
        return not self._stopped and self._clock() < self._until

    def stop(self) -> None:
        """Stop leading."""
        self._stopped = True

    async def keep(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Renew until that fails for too long."""
        while self.leading():
            await sleep(min(self._who.timing.retry_s, max(0.0, self._until - self._clock())))
            if self.leading():
                await self.look()

    async def look(self) -> None:
        """Read the Lease, and take or renew it if we may; errors are logged, the next look may succeed."""
        limit_s = self._who.timing.deadline_s / 2  # a call that hangs leaves time for another one
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
            self._until = -math.inf  # no longer ours, if it was
            return
        sent_at = self._clock()
        await self._write(held(self._seen, self._who, _wall()))
        self._until = sent_at + self._who.timing.deadline_s

    async def release(self) -> None:
        """Give the Lease back if it is ours; one try is enough, for it expires by itself."""
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
        """Create the Lease, or update the version that we know."""
        if self._seen is None:
            lease = await self._api.create(LEASES, self._who.namespace, lease)
        else:
            lease = await self._api.call("PUT", LEASES.path(self._who.namespace, self._who.name), body=lease)
        self._seen = observe(self._seen, lease, self._clock())


def _wall() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
