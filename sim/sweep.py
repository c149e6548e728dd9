"""A grid of simulations of one trace over fields of the spec, run in parallel processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import product
from multiprocessing import active_children, get_context
from typing import Any

import numpy as np

from sim.errors import SimulationError
from sim.outcomes import Result
from sim.reports.window import picture
from sim.run import run
from sim.spec import Spec, option
from sim.trace import Trace

Value = str | int | float | bool | None

#: Called with the numbers of finished and of all simulations.
Progress = Callable[[int, int], None]

#: Fields that are not policy: No-Wait uses the same values.
SURROUNDINGS = (
    *("nodes", "gpus_per_node", "cpus_per_node", "memory_gib_per_node", "binpack", "warmup"),
    *("data_gravity_h", "cloud_delay_s", "price_per_gpu_hour"),
)

SWITCH = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}


@dataclass(frozen=True, slots=True)
class Axis:
    """A field of the spec and its swept values."""

    field: str
    values: tuple[Value, ...]

    @property
    def name(self) -> str:
        """Name of the option on the command line, without dashes."""
        return option(self.field).lstrip("-")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One simulation of a grid."""

    #: Swept fields, by their names on the command line.
    changed: Mapping[str, Value]
    spec: Spec
    result: Result
    #: No-Wait on the same cluster.
    no_wait: Result
    #: Offered load: arriving GPU-hours per GPU-hour of the cluster.
    load: float
    #: Result of `Run.as_dict`.
    figures: Mapping[str, Any]
    #: A window of the schedule (SVG).
    gantt: str

    @property
    def label(self) -> str:
        """The swept fields and values for display."""
        return ", ".join(f"{name} {shown(value)}" for name, value in self.changed.items())

    @property
    def saved_percent(self) -> float:
        """Saving relative to No-Wait's cost, percent."""
        base = self.no_wait.cloud_cost
        return 100 * (1 - self.result.cloud_cost / base) if base else 0.0

    @property
    def jct_percent(self) -> float:
        """Increase of the mean completion time over No-Wait, percent."""
        base = self.no_wait.mean_jct_h
        return 100 * (self.result.mean_jct_h / base - 1) if base else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Stable keys, as in `-o json`."""
        return {
            "sweep": dict(self.changed),
            "saved_percent": self.saved_percent,
            "jct_increase_percent": self.jct_percent,
            "load": self.load,
            "no_wait": {"cloud_cost": self.no_wait.cloud_cost, "mean_jct_h": self.no_wait.mean_jct_h},
            **self.figures,
        }


def parse_axis(text: str) -> Axis:
    """Parse an axis such as `budget=5,10,25`.

    Raises:
        SimulationError: there is no such option, or a value has the wrong type.
    """
    name, _, values = text.partition("=")
    kinds = {option(field.name).lstrip("-"): field for field in fields(Spec) if field.name != "shares"}
    if not values or name not in kinds:
        known = "" if name in kinds else f"; options are {', '.join(kinds)}"
        raise SimulationError(f"--sweep: {text!r}: write OPTION=VALUE,VALUE,… as in budget=5,10,25{known}")
    field = kinds[name]
    return Axis(field.name, tuple(_parse(name, word, str(field.type)) for word in values.split(",")))


def grid(base: Spec, axes: Sequence[Axis]) -> list[tuple[dict[str, Value], Spec]]:
    """All combinations, the last axis varying fastest.

    Raises:
        SimulationError: an axis is given twice, has no effect, or a combination cannot be simulated.
    """
    names = [axis.field for axis in axes]
    for axis in axes:
        if names.count(axis.field) > 1:
            raise SimulationError(f"--sweep: {axis.name} is given twice; write all its values after one")
    if "budget_percent" in names and (base.factor is not None or "factor" in names):
        raise SimulationError("--sweep: a budget has no effect beside a factor; leave one out")
    found = []
    for values in product(*(axis.values for axis in axes)):
        changes: dict[str, Any] = dict(zip(names, values, strict=True))
        spec = replace(base, **changes)
        spec.check()
        found.append(({axis.name: value for axis, value in zip(axes, values, strict=True)}, spec))
    return found


def no_wait(spec: Spec) -> Spec:
    """The baseline of a spec: no waits, no returns, no offloads by rule; same cluster and cloud."""
    kept = {name: getattr(spec, name) for name in SURROUNDINGS}
    return Spec(waiting="no-wait", **kept)


def sweep(
    trace: Trace,
    base: Spec,
    axes: Sequence[Axis],
    *,
    engine: str = "auto",
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> list[SweepPoint]:
    """Simulate a grid, and No-Wait for each cluster in it; results are in the order of `grid`.

    Raises:
        SimulationError: see `grid` and `run`.
    """
    cells = grid(base, axes)
    specs = [spec for _, spec in cells]
    tasks = list(dict.fromkeys([*(no_wait(spec) for spec in specs), *specs]))
    done: dict[Spec, _Done] = {}
    for spec, what in _over_the_cores(trace, tasks, engine, workers or _cores()):
        done[spec] = what
        progress(len(done), len(tasks))
    return [
        SweepPoint(
            changed=changed,
            spec=spec,
            result=done[spec].result,
            no_wait=done[no_wait(spec)].result,
            load=offered_load(trace, spec),
            figures=done[spec].figures,
            gantt=done[spec].gantt,
        )
        for changed, spec in cells
    ]


def offered_load(trace: Trace, spec: Spec) -> float:
    """Arriving GPU-hours per GPU-hour of the cluster, over the counted window."""
    last = len(trace) - spec.warmup - 1
    span_h = trace.arrival_h[last] - trace.arrival_h[spec.warmup]
    capacity = spec.nodes * spec.gpus_per_node * span_h
    inside = slice(spec.warmup, last + 1)
    return float(np.dot(trace.gpus[inside], trace.duration_h[inside]) / capacity) if capacity else 0.0


@dataclass(frozen=True, slots=True)
class _Done:
    """Result sent by a worker process, without the outcomes, which are as long as the trace."""

    result: Result
    figures: Mapping[str, Any]
    gantt: str


def _over_the_cores(
    trace: Trace, specs: Sequence[Spec], engine: str, workers: int
) -> Iterator[tuple[Spec, _Done]]:
    if workers == 1 or len(specs) == 1:
        yield from ((spec, _one(trace, spec, engine)) for spec in specs)
        return
    # New processes, because numpy's threads do not survive a fork.
    pool = ProcessPoolExecutor(
        min(workers, len(specs)), get_context("spawn"), initializer=_begin, initargs=(trace, engine)
    )
    with pool:
        try:
            with _interrupts_ignored():
                futures = {pool.submit(_work, spec): spec for spec in specs}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            # A simulation failed or the user interrupted: do not wait for the rest.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                child.terminate()
            raise


def _one(trace: Trace, spec: Spec, engine: str) -> _Done:
    done = run(trace, spec, engine)
    return _Done(done.result, done.as_dict(spec), picture(trace, done.outcomes, spec))


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


#: Trace and engine of a worker process.
_given: list[tuple[Trace, str]] = []


def _begin(trace: Trace, engine: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    _given.append((trace, engine))


def _work(spec: Spec) -> _Done:
    trace, engine = _given[0]
    return _one(trace, spec, engine)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _parse(name: str, word: str, kind: str) -> Value:
    try:
        if kind == "bool":
            return SWITCH[word]
        if kind.startswith("int"):
            return int(word)
        return word if kind == "str" else float(word)
    except (KeyError, ValueError):
        wanted = "on or off" if kind == "bool" else "a whole number" if kind.startswith("int") else "a number"
        raise SimulationError(f"--sweep {name}: {word!r}: must be {wanted}") from None


def shown(value: Value) -> str:
    """A swept value as in a table or a label."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
