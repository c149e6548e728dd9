"""Seeds over the processes of this machine, or over a Ray cluster that exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from sim.on_ray import PACKAGES
from sim.parallel import in_parallel

A, B = TypeVar("A"), TypeVar("B")


def spread(call: Callable[[A], B], items: Sequence[A], *, on: str, processes: int | None) -> Iterator[B]:
    """The results as they come. `on`: the address of a Ray cluster; "" is this machine.

    Raises:
        SimulationError: the cluster is out of reach.
    """
    tasks = [(call, item) for item in items]
    packages = (*PACKAGES, "bench", "tests")
    for _, result in in_parallel(_called, tasks, on=on, workers=processes, packages=packages):
        yield result


def _called(call: Callable[[A], B], item: A) -> B:
    return call(item)
