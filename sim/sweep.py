"""A grid of simulations of traces over fields of the spec, run in parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np

from sim.errors import SimulationError
from sim.outcomes import Result
from sim.parallel import in_parallel
from sim.readers.fits import on_cluster
from sim.reports.window import picture
from sim.run import run
from sim.slowdowns import Slowdowns
from sim.spec import Spec, option
from sim.trace import Trace

Value = str | int | float | bool | None

#: Called with the numbers of finished and of all simulations.
Progress = Callable[[int, int], None]

#: Fields that are not policies of waiting: No-Wait uses the same values.
SURROUNDINGS = (
    *("nodes", "gpus_per_node", "cpus_per_node", "memory_gib_per_node", "binpack", "warmup", "cpu_offload"),
    *("data_gravity_h", "cloud_delay_s", "price_per_gpu_hour"),
)

#: Up to so many jobs in all simulations, new processes take longer to start than the work does.
FEW_JOBS = 1_000

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
    slowdowns: Slowdowns
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
    found = []
    for values in product(*(axis.values for axis in axes)):
        changes: dict[str, Any] = dict(zip(names, values, strict=True))
        spec = replace(base, **changes)
        spec.check()
        if "budget_percent" in names and spec.has_idle_budget:
            raise SimulationError("--sweep: a budget has no effect beside a factor; leave one out")
        found.append(({axis.name: value for axis, value in zip(axes, values, strict=True)}, spec))
    return found


def no_wait(spec: Spec) -> Spec:
    """The baseline of a spec: no waits, no returns; the same cluster, cloud and rule for CPU-only jobs."""
    kept = {name: getattr(spec, name) for name in SURROUNDINGS}
    return Spec(waiting="no-wait", **kept)


def sweep(
    trace: Trace,
    base: Spec,
    axes: Sequence[Axis],
    *,
    engine: str = "auto",
    workers: int | None = None,
    on: str = "",
    progress: Progress = lambda done, total: None,
) -> list[SweepPoint]:
    """`sweeps` of one trace."""
    (points,) = sweeps([(trace, base)], axes, engine=engine, workers=workers, on=on, progress=progress)
    return points


def sweeps(
    bases: Sequence[tuple[Trace, Spec]],
    axes: Sequence[Axis],
    *,
    engine: str = "auto",
    workers: int | None = None,
    on: str = "",
    progress: Progress = lambda done, total: None,
) -> list[list[SweepPoint]]:
    """Simulate a grid for each trace, and No-Wait for each cluster in it; results are in the order of `grid`.

    `workers` and `on`: see `in_parallel`.

    Raises:
        SimulationError: see `grid`, `run` and `in_parallel`.
    """
    grids = [(_Given(trace, engine), grid(base, axes)) for trace, base in bases]
    tasks = [(given, spec) for given, cells in grids for spec in _simulated(cells)]
    if workers is None and sum(len(given.trace) for given, _ in tasks) <= FEW_JOBS:
        workers = 1
    done: dict[tuple[int, Spec], _Done] = {}
    for number, what in in_parallel(_one, tasks, on=on, workers=workers):
        given, spec = tasks[number]
        done[id(given), spec] = what
        progress(len(done), len(tasks))
    return [
        _points(given.trace, cells, {spec: done[id(given), spec] for spec in _simulated(cells)})
        for given, cells in grids
    ]


def _simulated(cells: Sequence[tuple[dict[str, Value], Spec]]) -> list[Spec]:
    """What is simulated for a grid: each spec once, and No-Wait once for each cluster."""
    specs = [spec for _, spec in cells]
    return list(dict.fromkeys([*map(no_wait, specs), *specs]))


def _points(
    trace: Trace, cells: Sequence[tuple[dict[str, Value], Spec]], done: Mapping[Spec, _Done]
) -> list[SweepPoint]:
    return [
        SweepPoint(
            changed=changed,
            spec=spec,
            result=done[spec].result,
            slowdowns=done[spec].slowdowns,
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
    """Result sent by a worker, without the outcomes, which are as long as the trace."""

    result: Result
    slowdowns: Slowdowns
    figures: Mapping[str, Any]
    gantt: str


@dataclass(frozen=True, slots=True)
class _Given:
    """What every simulation of a trace is given."""

    trace: Trace
    engine: str


def _one(given: _Given, spec: Spec) -> _Done:
    trace = on_cluster(given.trace, spec)
    done = run(trace, spec, given.engine)
    return _Done(done.result, done.slowdowns, done.as_dict(spec), picture(trace, done.outcomes, spec))


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
