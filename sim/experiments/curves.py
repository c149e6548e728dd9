"""Figures of the experiments: panels side by side, a line per policy, styled as in `sim.reports.figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.experiments.shared import RESULTS
from sim.reports.figures import MARKS
from sim.reports.gantt import COLOURS

Line = Sequence[tuple[float, float]]
#: Policies keep colour and mark from figure to figure.
POLICIES = (
    *("No-Wait", "Constant-Wait", "Star-Wait", "Compute-Wait", "Runtime-Wait", "Resource-Wait"),
    *("Constant-Wait + No-Short-Jobs", "Compute-Wait, no cap"),
)


@dataclass(frozen=True, slots=True)
class Panel:
    """Axes with a line per policy; points are joined in the order given."""

    x: str
    y: str
    lines: Mapping[str, Line]
    #: Published points, drawn as hollow marks in the colour of the line of that name.
    published: Mapping[str, Line]
    log_x: bool = False


def draw(name: str, panels: Sequence[Panel]) -> str:
    """Write docs/results/NAME.svg; says how a page shows it."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(4.3 * len(panels), 3.7), layout="constrained")
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set_xlabel(panel.x)
        axes.set_ylabel(panel.y)
        axes.grid(color="#e6e6e6")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter("{x:,.10g}")
        if panel.log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
        for label, line in panel.lines.items():
            number = POLICIES.index(label) if label in POLICIES else names.index(label)
            style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)]}
            axes.plot(*zip(*line, strict=True), label=label, markeredgecolor="white", **style)
            if label in panel.published:
                hollow = {"markerfacecolor": "none", "markersize": "10", "linestyle": ""}
                axes.plot(*zip(*panel.published[label], strict=True), **style, **hollow)
    labelled = {
        text: line
        for axes in figure.axes
        for line, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [labelled[text] for text in names],
        names,
        loc="outside upper center",
        ncols=min(len(names), 2 * len(panels)),
        frameon=False,
        fontsize=9,
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "starburst", "svg.fonttype": "none"}):
        figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    return f"![{name}]({name}.svg)"
