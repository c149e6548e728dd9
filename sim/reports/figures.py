"""Figures of a sweep (matplotlib, SVG and PNG): cost against completion time and against load."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sim.errors import SimulationError
from sim.reports.gantt import COLOURS
from sim.sweep import SweepPoint, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Swept fields that change the load per GPU.
LOAD_AXES = ("nodes", "gpus-per-node")
MARKS = "osD^v<>Ph8"


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the Pareto-optimal points (cost, time), sorted by cost; the first of equal points counts."""
    front: list[int] = []
    least = inf
    for index in sorted(range(len(points)), key=lambda i: (*points[i], i)):
        if points[index][1] < least:
            least = points[index][1]
            front.append(index)
    return front


def knee(points: Sequence[tuple[float, float]]) -> int:
    """Index of the front's point farthest below the chord between its ends, with axes scaled to 1."""
    front = pareto_front(points)
    (x0, y0), (x1, y1) = points[front[0]], points[front[-1]]
    if len(front) < 3:
        return front[0]

    def below(index: int) -> float:
        x, y = points[index]
        return 1 - (x - x0) / (x1 - x0) - (y - y1) / (y0 - y1)

    return max(front, key=below)


def require_matplotlib() -> None:
    """Check for matplotlib before the simulations.

    Raises:
        SimulationError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise SimulationError("--out: figures need matplotlib: pip install starburst-hybrid[plots]")


def write_figures(points: Sequence[SweepPoint], out: Path, title: str = "") -> list[Path]:
    """Write the figures of a sweep into a directory, under this title; returns the files.

    Raises:
        SimulationError: a file cannot be written.
    """
    try:
        written = _save(cost_against_jct(points, title), out / "cost-jct")
        if any(axis in points[0].changed for axis in LOAD_AXES):
            written += _save(cost_against_load(points, title), out / "cost-load")
        gantt = out / "gantt.svg"
        gantt.write_text(points[knee([_cost_and_jct(p) for p in points])].gantt, encoding="utf-8")
    except OSError as error:
        raise SimulationError(
            f"--out: {error.filename or out}: {error.strerror}; choose another directory"
        ) from None
    return [*written, gantt]


def cost_against_jct(points: Sequence[SweepPoint], title: str = "") -> Figure:
    """All points of the grid; for each cluster No-Wait, the Pareto front and the advised point."""
    figure, axes = _figure("mean completion time (h)", "cloud cost ($)", title)
    clusters = _series(points, *(name for name in points[0].changed if name not in LOAD_AXES))
    # The axis whose values label the points; with several clusters there is no room for labels.
    policies = [name for name in points[0].changed if name not in LOAD_AXES]
    numbers = [name for name in policies if isinstance(points[0].changed[name], int | float)]
    beside = (numbers or policies)[-1] if policies and len(clusters) == 1 else ""
    for number, (name, series) in enumerate(_series(points, *LOAD_AXES, beside)):
        axes.plot(
            [p.result.mean_jct_h for p in series],
            [p.result.cloud_cost_usd for p in series],
            linewidth=0.8,
            marker=MARKS[number % len(MARKS)],
            markersize=7,
            markeredgecolor="white",
            color=COLOURS[number % len(COLOURS)],
            label=name,
            zorder=3,
        )
    axes.margins(x=0.1, y=0.1)
    fronts = [(name, _front(axes, series)) for name, series in clusters]
    if beside:
        named = [(p, shown(p.changed[beside])) for p in fronts[0][1]]
        _label(axes, named, (-5, -11), "right")
        axes.set_title(f"beside the points of the front: {beside}", loc="left", fontsize=9, color="#555")
    elif len(clusters) > 1:
        _label(axes, [(front[0], name) for name, front in fronts if front], (8, -3), "left")
    _legend(figure, axes)
    return figure


def _front(axes: Axes, points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Draw one cluster's Pareto front and its No-Wait; returns the points on the front, by cost."""
    bases = dict.fromkeys((p.no_wait.cloud_cost_usd, p.no_wait.mean_jct_h) for p in points)
    pairs = [*map(_cost_and_jct, points), *bases]
    front = pareto_front(pairs)
    cost_usd, jct_h = pairs[knee(pairs)]
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": "#c00", "linewidths": 1.6, "zorder": 4}
    axes.scatter(jct_h, cost_usd, s=170, label="advised", **ring)
    style: dict[str, Any] = {"color": "#999", "linewidth": 1.2, "zorder": 1, "label": "Pareto front"}
    axes.plot([pairs[i][1] for i in front], [pairs[i][0] for i in front], **style)
    costs_usd, jcts_h = zip(*bases, strict=True)
    axes.scatter(jcts_h, costs_usd, marker="x", s=50, color="#222", label="No-Wait", zorder=2)
    return [points[i] for i in front if i < len(points)]


def cost_against_load(points: Sequence[SweepPoint], title: str = "") -> Figure:
    """Cost over offered load: a line per combination of the other swept fields, and No-Wait."""
    figure, axes = _figure("load (GPU-hours arriving per GPU-hour of the cluster)", "cloud cost ($)", title)
    for number, (name, series) in enumerate(_series(points, *LOAD_AXES)):
        along = sorted(series, key=lambda p: p.load)
        axes.plot(
            [p.load for p in along],
            [p.result.cloud_cost_usd for p in along],
            marker=MARKS[number % len(MARKS)],
            markeredgecolor="white",
            color=COLOURS[number % len(COLOURS)],
            label=name,
        )
    bases = sorted({(p.load, p.no_wait.cloud_cost_usd) for p in points})
    axes.plot(*zip(*bases, strict=True), linestyle="--", marker="x", color="#222", label="No-Wait")
    axes.set_ylim(bottom=0)
    _legend(figure, axes)
    return figure


def _cost_and_jct(point: SweepPoint) -> tuple[float, float]:
    return point.result.cloud_cost_usd, point.result.mean_jct_h


def _series(points: Sequence[SweepPoint], *without: str) -> list[tuple[str, list[SweepPoint]]]:
    """Groups of points that differ only in these fields, named by their common values."""

    def common(point: SweepPoint) -> str:
        return ", ".join(f"{k} {shown(v)}" for k, v in point.changed.items() if k not in without)

    names = list(dict.fromkeys(common(point) for point in points))
    ordered = sorted(points, key=lambda p: names.index(common(p)))
    return [(name or "simulated", list(group)) for name, group in groupby(ordered, common)]


def _figure(x: str, y: str, title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to import

    figure = Figure(figsize=(7.6, 4.6), layout="constrained")
    axes = figure.add_subplot()
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter("${x:,.10g}")
    return figure, axes


def _label(
    axes: Axes,
    named: Sequence[tuple[SweepPoint, str]],
    offset: tuple[int, int],
    side: Literal["left", "right"],
) -> None:
    """Write labels beside points, omitting those that would overlap an earlier one.

    Below and to the left of a point of a front there is room, as no point dominates it.
    """
    axes.autoscale_view()
    taken: list[tuple[float, float]] = []
    for point, name in named:
        at = (point.result.mean_jct_h, point.result.cloud_cost_usd)
        x, y = axes.transData.transform(at)
        if all(abs(x - u) > 7 * len(name) or abs(y - v) > 14 for u, v in taken):
            axes.annotate(name, at, offset, textcoords="offset points", ha=side, fontsize=8, color="#333")
            taken.append((x, y))


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    figure.legend(list(once.values()), list(once), loc="outside right upper", frameon=False, fontsize=8)


def _save(figure: Figure, stem: Path) -> list[Path]:
    import matplotlib as mpl  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "starburst", "svg.fonttype": "none"}):
        metadata: dict[str, Any] = {"Date": None}
        figure.savefig(stem.with_suffix(".svg"), metadata=metadata)
        figure.savefig(stem.with_suffix(".png"), dpi=160)
    return [stem.with_suffix(".svg"), stem.with_suffix(".png")]
