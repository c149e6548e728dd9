"""An event loop in virtual time whose lives can be killed between any two callbacks, as a process can."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop, heappush
from random import Random
from types import coroutine
from typing import Any, TypeVar
from weakref import WeakSet

from bench.virtual import VirtualLoop

T = TypeVar("T")

#: Number of the scheduler process that a callback belongs to; 0 is the world around it.
LIFE: ContextVar[int] = ContextVar("life", default=0)
#: Longest time between the end of a call in a thread and its result in the loop, virtual seconds.
THREAD_S = 0.02
#: More timers than that are looked through for cancelled ones once half of them are, as asyncio does.
FEW_TIMERS = 100
#: How often tasks are asked to end: cleanup that awaits something takes more than once.
ROUNDS = 20


class KilledError(BaseException):
    """The process ended in the middle of a call that was made in a thread."""


class _Nap:
    """What a task waits for in `nap`: its timer goes on with the task, in one event in place of two."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_cancelled",
        "_context",
        "_loop",
        "_on",
        "_timer",
        "_when",
        "_why",
    )

    def __init__(self, loop: StormLoop, when: float) -> None:
        self._loop, self._when = loop, when
        self._cancelled = False
        self._why: tuple[object, ...] = ()
        self._timer: asyncio.TimerHandle | None = None

    def __await__(self) -> Iterator[_Nap]:
        self._asyncio_future_blocking = True
        yield self

    def add_done_callback(self, on: Callable[[_Nap], object], *, context: Context) -> None:
        """Called by the task."""
        self._on, self._context = on, context
        self._timer = self._loop.call_at(self._when, on, self, context=context)

    def cancel(self, msg: object = None) -> bool:
        """Called by the task: wake up now. By its message AnyIO knows its own cancellation."""
        if self._cancelled or self._timer is None:
            return False
        self._cancelled, self._why = True, () if msg is None else (msg,)
        self._timer.cancel()
        self._loop.call_soon(self._on, self, context=self._context)
        return True

    def result(self) -> None:
        """Called by the task."""
        self._timer = None  # which refers to this
        if self._cancelled:
            raise asyncio.CancelledError(*self._why)


async def nap(delay: float, result: T | None = None) -> T | None:
    """As asyncio.sleep."""
    if delay <= 0:
        await _turn()
    else:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StormLoop)
        await _Nap(loop, loop.now + delay)
    return result


@coroutine
def _turn() -> Generator[None]:
    yield


class StormLoop(VirtualLoop):
    """Calls in threads are made at once and answered a little later, in order."""

    def __init__(self, start: float, seed: int) -> None:
        self._dead: set[int] = set()
        #: Of each life that is stopped what it does once it goes on.
        self._suspended: dict[int, list[asyncio.Handle]] = {}
        #: What callbacks of those that live raised, and nobody heard.
        self.unheard: list[str] = []
        #: When each life was killed or stopped.
        self.stops: defaultdict[int, list[float]] = defaultdict(list)
        #: Lives so far.
        self.lives = 0
        #: What the dead would have done next, and what they wait for.
        self._undone: list[tuple[Any, Any, Context]] = []
        self._unanswered: list[asyncio.Future[Any]] = []
        #: Tasks by life, as long as somebody else holds them.
        self._tasks: defaultdict[int, WeakSet[asyncio.Task[Any]]] = defaultdict(WeakSet)
        self._draw = Random(f"{seed}/threads")
        self._answered_at = start
        super().__init__(start)
        #: Timers with their times before them, which are compared without calling Python.
        self._scheduled: list[tuple[float, asyncio.TimerHandle]] = []

    def _run_once(self) -> None:
        """As asyncio's, without files: the system is not asked, and a round costs a third."""
        if len(self._scheduled) > FEW_TIMERS and self._timer_cancelled_count > len(self._scheduled) / 2:
            self._drop_cancelled()
        timers, ready = self._scheduled, self._ready
        while timers and timers[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(timers)[1]._scheduled = False  # type: ignore[attr-defined]
        if not ready and not self._stopping:
            assert timers, "nothing will ever happen"
            self.now += max(0.0, timers[0][0] - self.now)
        end = self.now + self._clock_resolution
        while timers and timers[0][0] < end:
            timer = heappop(timers)[1]
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        """As asyncio's."""
        task: asyncio.Task[Any] = super().create_task(coro, **more)
        self._tasks[LIFE.get()].add(task)
        return task

    def tasks_of(self, life: int) -> list[asyncio.Task[Any]]:
        """What a life does."""
        return [*self._tasks.pop(life, ())]

    def _drop_cancelled(self) -> None:
        kept = []
        for when, timer in self._scheduled:
            if timer._cancelled:
                timer._scheduled = False  # type: ignore[attr-defined]
            else:
                kept.append((when, timer))
        heapify(kept)
        self._scheduled = kept
        self._timer_cancelled_count = 0

    def hear(self, context: dict[str, Any]) -> None:
        """As asyncio's exception handler: tasks of the dead have nobody to tell."""
        handle, error = context.get("handle"), context.get("exception")
        if isinstance(handle, asyncio.Handle) and isinstance(error, Exception):
            life = handle._context.get(LIFE)
            if life not in self._dead:
                self.unheard.append(f"a callback of life {life} raised {error!r}")

    def kill(self, life: int) -> None:
        """Nothing of this life happens any more; its `finally` blocks do not run either."""
        if life in self._suspended:
            self.resume(life)
        self._dead.add(life)
        self.stops[life].append(self.now)
        for handle in self._ready:
            if handle._context.get(LIFE) == life and not handle.cancelled():
                self._undone.append((handle._callback, handle._args, handle._context))
                handle.cancel()
        for _, timer in self._scheduled:
            if timer._context.get(LIFE) == life:
                timer.cancel()

    def suspend(self, life: int) -> None:
        """SIGSTOP: nothing of this life happens until `resume`, then all of it, late. Twice is as once."""
        self.stops[life].append(self.now)
        there = (*self._ready, *(timer for _, timer in self._scheduled))
        held = [one for one in there if one._context.get(LIFE) == life and not one.cancelled()]
        self._suspended.setdefault(life, []).extend(held)
        kept = {id(handle) for handle in held}
        for index, handle in enumerate(self._ready):
            if id(handle) in kept:  # their number stays, which asyncio counts on
                self._ready[index] = gap = asyncio.Handle(held.clear, (), self)
                gap.cancel()
        self._scheduled = [timed for timed in self._scheduled if id(timed[1]) not in kept]
        heapify(self._scheduled)
        for handle in held:
            if isinstance(handle, asyncio.TimerHandle):
                handle._scheduled = False  # type: ignore[attr-defined]

    def resume(self, life: int) -> None:
        """SIGCONT; a life that is not stopped stays as it is."""
        for handle in self._suspended.pop(life, ()):
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle):
                handle._scheduled = True  # type: ignore[attr-defined]
                heappush(self._scheduled, (handle.when(), handle))
            else:
                self._ready.append(handle)

    async def may_die(self, strikes: Callable[[], bool]) -> None:
        """The process of the caller dies here if `strikes`; then this never returns."""
        life = LIFE.get()
        if life and strikes():
            self.kill(life)
            await self.create_future()

    async def may_stop(self, strikes: Callable[[], bool], seconds: float) -> None:
        """The process of the caller is stopped here for so long if `strikes`."""
        life = LIFE.get()
        if life and strikes():
            self.suspend(life)
            of_world(lambda: self.call_later(seconds, self.resume, life))
            await asyncio.sleep(0)

    def is_dead(self, life: int) -> bool:
        """Whether it was killed."""
        return life in self._dead

    def bury(self) -> None:
        """After the verdict: all tasks end, also those of the dead, with their `finally` blocks."""
        for life in list(self._suspended):
            self.resume(life)
        self._dead.clear()
        for future in self._unanswered:
            future.cancel()
        for callback, args, context in self._undone:
            self.call_soon(callback, *args, context=context)
        for _ in range(ROUNDS):
            left = asyncio.all_tasks(self)
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.sleep(1.0))
            if not left:
                break
        self.run_until_complete(self.shutdown_asyncgens())

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As asyncio's, except for the dead."""
        handle = asyncio.Handle(callback, args, self, context)
        life = handle._context.get(LIFE)
        if life in self._dead:
            self._undone.append((callback, args, handle._context))
            handle.cancel()
        elif life in self._suspended:
            self._suspended[life].append(handle)
        else:
            self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's, except for the dead."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        life = timer._context.get(LIFE)
        if life in self._suspended:
            self._suspended[life].append(timer)
            return timer
        timer._scheduled = True  # type: ignore[attr-defined]
        heappush(self._scheduled, (when, timer))
        if life in self._dead:
            timer.cancel()
        return timer

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call now, in this thread; the result is there up to THREAD_S later, in the order of the calls."""
        future: asyncio.Future[T] = self.create_future()
        try:
            settle = _setter(future.set_result, func(*args), future)
        except KilledError:
            self._unanswered.append(future)
            return future
        except BaseException as error:  # it is raised where the result is awaited
            settle = _setter(future.set_exception, error, future)
        self._answered_at = max(self._answered_at, self.now + self._draw.uniform(0, THREAD_S))
        self.call_at(self._answered_at, settle)
        return future


def of_life(life: int, call: Callable[[], T]) -> T:
    """Call with all that it begins belonging to this life."""
    context = copy_context()
    context.run(LIFE.set, life)
    return context.run(call)


def of_world(call: Callable[[], T]) -> T:
    """Call with all that it begins outliving the caller."""
    return call() if LIFE.get() == 0 else of_life(0, call)


def _setter(settle: Callable[[Any], None], value: object, future: asyncio.Future[Any]) -> Callable[[], None]:
    def answer() -> None:
        if not future.done():
            settle(value)

    return answer
