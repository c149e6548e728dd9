"""Sends bindings, many at once, and finds out what became of each before its room is anybody's again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import structlog

from chakra_plugin.cycle import Bind
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, UnreachableError
from starburst.kube.resources import PODS, Object

log = structlog.get_logger()

#: Bindings that are under way at the same time.
WORKERS = 32
#: Wall seconds for one of them; then it is asked for again, on the same node, until there is an answer.
TIMEOUT_S = 5.0
FIRST_PAUSE_S, LAST_PAUSE_S = 0.25, 5.0


#: Wall seconds after which a call that was not answered is over (kube-apiserver's --request-timeout).
LANDING_S = 60.0


class BindingResult(Enum):
    """What is known of a binding."""

    BOUND = "bound"
    REFUSED = "refused"
    GONE = "gone"
    #: The server was not reached.
    UNSENT = "unsent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BindingAttempt:
    """A binding, and what is not known of it from before."""

    bind: Bind
    #: How often in a row there was no answer.
    unanswered: int = 0
    #: Until then a call that was not answered may still be carried out: a later refusal does not mean that
    #: the pod stays unbound. Epoch seconds.
    may_land_until: float = 0.0


class BindingListener(Protocol):
    """Whom the binder asks, and to whom it tells what became of a binding."""

    def leading(self) -> bool:
        """Whether this process may bind at all."""

    def valid(self, bind: Bind) -> bool:
        """Whether a binding may still be sent."""

    def bound(self, bind: Bind, node: str) -> None:
        """The pod is on this node; not on the one it was meant for if another scheduler was faster."""

    def refused(self, bind: Bind, *, lost: bool) -> float | None:
        """Surely not bound; the epoch second at which to send it again, if it keeps its place."""

    def unanswered(self) -> None:
        """It is not known what became of a call; it will be made again."""


class Binder:
    """A queue of bindings and its workers."""

    def __init__(
        self,
        api: Api,
        outcome: BindingListener,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api = api
        self._outcome = outcome
        self._clock = clock
        self._sleep = sleep
        self._queue: asyncio.Queue[BindingAttempt] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._later: set[asyncio.Task[None]] = set()
        self._busy = 0

    @property
    def outstanding(self) -> int:
        """Bindings that wait for their turn or their answer."""
        return self._queue.qsize() + self._busy

    def send(self, bind: Bind) -> None:
        """Take a binding."""
        self._queue.put_nowait(BindingAttempt(bind))

    async def run(self) -> None:
        """Work until cancelled; calls that are under way then still get their answer, others are not made."""
        self._workers = [asyncio.ensure_future(self._work()) for _ in range(WORKERS)]
        try:
            await asyncio.gather(*self._workers)
        except asyncio.CancelledError:
            # gather has cancelled the workers, each of which sees its call through.
            await asyncio.wait(self._workers, timeout=2 * TIMEOUT_S)
            raise
        finally:
            for task in self._later:
                task.cancel()

    async def _work(self) -> None:
        while True:
            errand = await self._queue.get()
            self._busy += 1
            try:
                await self._one(errand)
            finally:
                self._busy -= 1

    async def _one(self, errand: BindingAttempt) -> None:
        bind, outcome = errand.bind, self._outcome
        if not outcome.leading():
            return  # the rounds end, too
        valid = outcome.valid(bind)
        if not valid and not errand.may_land_until:
            self._again(errand, outcome.refused(bind, lost=True))
            return
        answer, node = await _through(self._send(bind) if valid else self._ask(bind))
        if answer is BindingResult.BOUND:
            outcome.bound(bind, node)
        elif answer is BindingResult.UNKNOWN and valid:
            self._try_again(replace(errand, may_land_until=self._clock() + LANDING_S))
        elif answer in (BindingResult.GONE, BindingResult.REFUSED) and not self._may_land(answer, errand):
            self._again(BindingAttempt(bind), outcome.refused(bind, lost=not valid))
        else:
            self._try_again(errand)

    def _may_land(self, answer: BindingResult, errand: BindingAttempt) -> bool:
        """Whether the pod may be bound yet by a call from before."""
        return answer is not BindingResult.GONE and self._clock() < errand.may_land_until

    async def _send(self, bind: Bind) -> tuple[BindingResult, str]:
        namespace, name = bind.pod.key
        try:
            path = PODS.path(namespace, name, "binding")
            await self._api.call("POST", path, body=binding(bind), timeout_s=TIMEOUT_S)
        except ApiError as error:
            if error.status == 409:
                log.info("bind-conflict", pod=f"{namespace}/{name}", node=bind.node, error=error.message)
                return await self._ask(bind)
            log.warning("not-bound", pod=f"{namespace}/{name}", node=bind.node, error=str(error))
            if error.status == 404:
                return BindingResult.GONE, ""
            return (BindingResult.UNKNOWN if error.status >= 500 else BindingResult.REFUSED), ""
        except UnreachableError as error:
            log.warning("bind-unanswered", pod=f"{namespace}/{name}", node=bind.node, error=str(error))
            return (BindingResult.UNKNOWN if error.sent else BindingResult.UNSENT), ""
        return BindingResult.BOUND, bind.node

    async def _ask(self, bind: Bind) -> tuple[BindingResult, str]:
        """Where the pod is by now."""
        try:
            pod = await self._api.find(PODS, *bind.pod.key)
        except (ApiError, UnreachableError):
            return BindingResult.UNKNOWN, ""
        if pod is None or pod["metadata"]["uid"] != bind.pod.uid:
            return BindingResult.GONE, ""
        node = pod["spec"].get("nodeName", "")
        return (BindingResult.BOUND, node) if node else (BindingResult.REFUSED, "")

    def _try_again(self, errand: BindingAttempt) -> None:
        self._outcome.unanswered()
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(errand.unanswered, 10), LAST_PAUSE_S)
        self._again(replace(errand, unanswered=errand.unanswered + 1), self._clock() + pause_s)

    def _again(self, errand: BindingAttempt, at: float | None) -> None:
        if at is None:
            return
        task = asyncio.ensure_future(self._wait(errand, at))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _wait(self, errand: BindingAttempt, at: float) -> None:
        await self._sleep(max(0.0, at - self._clock()))
        self._queue.put_nowait(errand)


async def _through(call: Awaitable[tuple[BindingResult, str]]) -> tuple[BindingResult, str]:
    """The answer of a call, also to one who is cancelled meanwhile."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def binding(bind: Bind) -> Object:
    """The body; its annotations land on the pod."""
    namespace, name = bind.pod.key
    metadata: Object = {"name": name, "namespace": namespace, "uid": bind.pod.uid}
    if bind.rank is not None:
        metadata["annotations"] = {names.RANK: str(bind.rank)}
    target = {"apiVersion": "v1", "kind": "Node", "name": bind.node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
