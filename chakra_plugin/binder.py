"""Sends bindings, many at once, and resolves each before its node's resources are given to another pod.

A call without an answer may still be carried out by the server. So the binding is asked for again, on the
same node, until the server answers; a refusal counts only once no earlier call can land (`LANDING_S`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import count
from typing import Any, Protocol

import structlog

from chakra_plugin.scheduling.cycle import Bind
from starburst.aio import TaskSet, running
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError
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
    """What is known about a binding."""

    BOUND = "bound"
    REFUSED = "refused"
    GONE = "gone"
    #: The server was not reached.
    UNSENT = "unsent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BindingAttempt:
    """A binding, and how its earlier calls ended."""

    bind: Bind
    #: Calls in a row without an answer.
    unanswered: int = 0
    #: Until then a call that was not answered may still be carried out: a later refusal does not mean that
    #: the pod stays unbound. Epoch seconds.
    may_land_until: float = 0.0


class BindingListener(Protocol):
    """Callbacks of the binder."""

    def leading(self) -> bool:
        """Whether this process holds the Lease, so that it may bind."""

    def valid(self, bind: Bind) -> bool:
        """Whether a binding may still be sent."""

    def bound(self, bind: Bind, node: str) -> None:
        """The pod is on this node, which is not `bind.node` if another scheduler was faster."""

    def refused(self, bind: Bind, *, lost: bool) -> float | None:
        """The pod is not bound; returns the epoch second of the next try, None if it is given up."""

    def unanswered(self) -> None:
        """A call had no answer; it is repeated."""


class Binder:
    """A queue of bindings and its workers."""

    def __init__(
        self,
        api: Api,
        listener: BindingListener,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api = api
        self._listener = listener
        self._clock = clock
        self._sleep = sleep
        self._queue: asyncio.Queue[BindingAttempt] = asyncio.Queue()
        self._workers = TaskSet()
        #: Bindings that pause, by number.
        self._later = TaskSet()
        self._count = count()
        self._busy = 0

    @property
    def outstanding(self) -> int:
        """Number of bindings that are queued or under way."""
        return self._queue.qsize() + self._busy

    def send(self, bind: Bind) -> None:
        """Queue a binding."""
        self._queue.put_nowait(BindingAttempt(bind))

    async def run(self) -> None:
        """Send until cancelled; calls under way then are awaited, queued ones are dropped."""
        workers = [self._workers.ensure(number, self._work) for number in range(WORKERS)]
        try:
            await asyncio.gather(*workers)
        except asyncio.CancelledError:
            # gather has cancelled the workers, each of which sees its call through.
            await asyncio.wait(workers, timeout=2 * TIMEOUT_S)
            raise
        finally:
            await self._later.cancel()

    async def _work(self) -> None:
        while True:
            attempt = await self._queue.get()
            self._busy += 1
            try:
                await self._one(attempt)
            finally:
                self._busy -= 1

    async def _one(self, attempt: BindingAttempt) -> None:
        bind, listener = attempt.bind, self._listener
        if not listener.leading():
            return  # the Lease is lost, and this scheduler ends
        valid = listener.valid(bind)
        if not valid and not attempt.may_land_until:
            self._again(attempt, listener.refused(bind, lost=True))
            return
        answer, node = await _through(self._send(bind) if valid else self._ask(bind))
        if answer is BindingResult.BOUND:
            listener.bound(bind, node)
        elif answer is BindingResult.UNKNOWN and valid:
            self._try_again(replace(attempt, may_land_until=self._clock() + LANDING_S))
        elif answer in (BindingResult.GONE, BindingResult.REFUSED) and not self._may_land(answer, attempt):
            self._again(BindingAttempt(bind), listener.refused(bind, lost=not valid))
        else:
            self._try_again(attempt)

    def _may_land(self, answer: BindingResult, attempt: BindingAttempt) -> bool:
        """Whether an earlier call may still bind the pod."""
        return answer is not BindingResult.GONE and self._clock() < attempt.may_land_until

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
            if error.absent:
                return BindingResult.GONE, ""
            return (BindingResult.UNKNOWN if error.status >= 500 else BindingResult.REFUSED), ""
        except ApiUnreachableError as error:
            log.warning("bind-unanswered", pod=f"{namespace}/{name}", node=bind.node, error=str(error))
            return (BindingResult.UNKNOWN if error.sent else BindingResult.UNSENT), ""
        return BindingResult.BOUND, bind.node

    async def _ask(self, bind: Bind) -> tuple[BindingResult, str]:
        """Read where the pod is now."""
        try:
            pod = await self._api.find(PODS, *bind.pod.key)
        except (ApiError, ApiUnreachableError):
            return BindingResult.UNKNOWN, ""
        if pod is None or pod["metadata"]["uid"] != bind.pod.uid:
            return BindingResult.GONE, ""
        node = pod["spec"].get("nodeName", "")
        return (BindingResult.BOUND, node) if node else (BindingResult.REFUSED, "")

    def _try_again(self, attempt: BindingAttempt) -> None:
        self._listener.unanswered()
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(attempt.unanswered, 10), LAST_PAUSE_S)
        self._again(replace(attempt, unanswered=attempt.unanswered + 1), self._clock() + pause_s)

    def _again(self, attempt: BindingAttempt, at: float | None) -> None:
        if at is None:
            return
        self._later.ensure(next(self._count), partial(self._wait, attempt, at))

    async def _wait(self, attempt: BindingAttempt, at: float) -> None:
        await self._sleep(max(0.0, at - self._clock()))
        self._queue.put_nowait(attempt)


async def _through(call: Coroutine[Any, Any, tuple[BindingResult, str]]) -> tuple[BindingResult, str]:
    """Await a call that is finished even if the caller is cancelled meanwhile."""
    async with running(call, "binding") as task:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise


def binding(bind: Bind) -> Object:
    """The body of a binding; the server copies its annotations to the pod."""
    namespace, name = bind.pod.key
    metadata: Object = {"name": name, "namespace": namespace, "uid": bind.pod.uid}
    if bind.rank is not None:
        metadata["annotations"] = {names.RANK: str(bind.rank)}
    if bind.master:
        metadata.setdefault("annotations", {})[names.MASTER_ADDR] = bind.master
    target = {"apiVersion": "v1", "kind": "Node", "name": bind.node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
