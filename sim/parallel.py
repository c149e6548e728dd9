"""Maps a function over tasks in parallel: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from sim.errors import SimulationError
from sim.on_ray import PACKAGES, on_ray

G = TypeVar("G")
T = TypeVar("T")
R = TypeVar("R")

#: A function of a module (processes import it), of what is given and a task.
Work = Callable[[G, T], R]

#: What is said of a worker process that was killed.
KILLED = (
    "a process of the simulation was killed, as the system does where memory is short: there is one for each "
    "core, with the trace in it; use fewer cores (taskset -c 0,1 starburst …), or simulate fewer jobs"
)


def in_parallel(
    work: Work[G, T, R],
    tasks: Sequence[tuple[G, T]],
    *,
    on: str = "",
    workers: int | None = None,
    packages: Sequence[str] = PACKAGES,
) -> Iterator[tuple[int, R]]:
    """The number of each task and its result, as they end. What several tasks are given is sent once.

    Args:
        work: must have no effect but its result: a task whose worker is lost is done again.
        tasks: what is given, and the task.
        on: the address of a Ray cluster, `ray://HOST:PORT`; "" is this machine.
        workers: processes on this machine; 1 is this process, None is one per core.
        packages: what a Ray cluster needs of our own packages, such as that of `work`.

    Raises:
        SimulationError: the cluster is out of reach, or ended a task's worker too often; or the system
            killed a process.
        Exception: what `work` raised.
    """
    if on:
        return on_ray(on, work, tasks, packages)
    workers = min(cores() if workers is None else workers, len(tasks))
    return _over_processes(work, tasks, workers) if workers > 1 else _one_by_one(work, tasks)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_by_one(work: Work[G, T, R], tasks: Sequence[tuple[G, T]]) -> Iterator[tuple[int, R]]:
    for number, (given, task) in enumerate(tasks):
        yield number, work(given, task)


def _over_processes(
    work: Work[G, T, R], tasks: Sequence[tuple[G, T]], workers: int
) -> Iterator[tuple[int, R]]:
    given = {id(item): item for item, _ in tasks}
    # New processes, because numpy's threads do not survive a fork.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(work, given))
    with pool:
        try:
            with _interrupts_ignored():
                futures = {
                    pool.submit(_do, id(item), task): number for number, (item, task) in enumerate(tasks)
                }
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException as error:
            # A task failed or the user interrupted: do not wait for the rest.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                child.terminate()
            if isinstance(error, BrokenExecutor):
                raise SimulationError(KILLED) from None
            raise


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C while worker processes are started: they inherit that before they can ask for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


#: The function of a worker process, and what tasks are given, by number.
_begun: list[tuple[Work[Any, Any, Any], dict[int, Any]]] = []


def _begin(work: Work[Any, Any, Any], given: dict[int, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    _begun.append((work, given))


def _do(item: int, task: Any) -> Any:
    work, given = _begun[0]
    return work(given[item], task)
