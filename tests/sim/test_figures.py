"""Figures: the right points are on the front, the files are pictures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from sim.errors import SimulationError
from sim.reports import figures
from sim.reports.figures import cost_against_jct, cost_against_load, knee, pareto_front, write_figures
from sim.reports.gantt import COLOURS, ink_on
from sim.reports.window import picture
from sim.run import run
from sim.spec import Spec
from sim.sweep import SweepPoint, parse_axis, sweep
from sim.trace import Trace
from tests.sim.test_sweep import BASE, busy

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def points() -> list[SweepPoint]:
    axes = [parse_axis("nodes=1,2"), parse_axis("waiting=compute,constant"), parse_axis("budget=10,100")]
    return sweep(busy(), BASE, axes, workers=1)


@pytest.fixture(scope="module")
def written(points: list[SweepPoint], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The figures of the points."""
    return write_figures(points, tmp_path_factory.mktemp("figures"))


def test_on_the_front_is_what_nothing_beats_in_both() -> None:
    assert pareto_front([(3, 1), (1, 3), (2, 2), (2, 3), (3, 2), (4, 1)]) == [1, 2, 0]
    assert pareto_front([(1, 1), (1, 1)]) == [0], "of equals the first"
    assert pareto_front([(1, 2), (1, 1)]) == [1]
    assert pareto_front([]) == []


def test_the_knee_is_where_the_front_bends_most() -> None:
    assert knee([(100, 1.0), (20, 1.1), (10, 2.0)]) == 1
    assert knee([(100, 1.0), (90, 1.9), (10, 2.0), (30, 1.2)]) == 3
    assert knee([(5, 1), (3, 2)]) == 1, "of two the cheaper"
    assert knee([(0, 1), (0, 1)]) == 0


def test_every_file_is_a_picture(written: list[Path]) -> None:
    names = ["cost-jct.svg", "cost-jct.png", "cost-load.svg", "cost-load.png", "gantt.svg"]
    assert [file.name for file in written] == names
    for file in written:
        if file.suffix == ".png":
            assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        else:
            assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_same_points_give_the_same_bytes(
    points: list[SweepPoint], written: list[Path], tmp_path: Path
) -> None:
    again = write_figures(points, tmp_path)
    assert [file.read_bytes() for file in written] == [file.read_bytes() for file in again]


def test_cost_is_drawn_against_load_only_where_load_was_swept(written: list[Path], tmp_path: Path) -> None:
    assert "cost-load.svg" in [file.name for file in written]
    without = sweep(busy(), BASE, [parse_axis("budget=10,100")], workers=1)
    assert (tmp_path / "cost-load.svg") not in write_figures(without, tmp_path)


def test_lines_hold_the_results(points: list[SweepPoint]) -> None:
    (axes,) = cost_against_jct(points).axes
    drawn = {(float(x), float(y)) for line in axes.lines for x, y in zip(*line.get_data(), strict=True)}
    assert {(p.result.mean_jct_h, p.result.cloud_cost_usd) for p in points} <= drawn
    (axes,) = cost_against_load(points).axes
    *policies, base = axes.lines
    assert base.get_label() == "No-Wait"
    assert list(base.get_ydata()) == [
        points[4].no_wait.cloud_cost_usd,
        points[0].no_wait.cloud_cost_usd,
    ]
    assert {line.get_label() for line in policies} == {
        f"waiting {name}, budget {p}" for name in ("compute", "constant") for p in (10, 100)
    }


def test_axes_have_units_and_a_legend(points: list[SweepPoint]) -> None:
    for figure in (cost_against_jct(points), cost_against_load(points)):
        (axes,) = figure.axes
        assert "(" in axes.get_xlabel()
        assert axes.get_ylabel() == "cloud cost ($)"
        assert "No-Wait" in [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(("usd", "said"), [(0.0, "$0"), (0.5, "$0.5"), (12.5, "$12.5"), (3e5, "$300,000")])
def test_small_amounts_are_not_rounded_to_dollars(points: list[SweepPoint], usd: float, said: str) -> None:
    (axes,) = cost_against_load(points).axes
    assert axes.yaxis.get_major_formatter()(usd) == said


def test_the_title_names_the_trace_and_the_advised_point_is_marked(points: list[SweepPoint]) -> None:
    figure = cost_against_jct(points, "jobs.csv, 300 jobs on 4 × 8 GPUs")
    assert figure.get_suptitle() == "jobs.csv, 300 jobs on 4 × 8 GPUs"
    (axes,) = figure.axes
    rings = [ring for ring in axes.collections if ring.get_label() == "advised"]
    assert len(rings) == 2, "one for each cluster"
    marked = {tuple(map(float, ring.get_offsets()[0])) for ring in rings}
    base = [(p.no_wait.mean_jct_h, p.no_wait.cloud_cost_usd) for p in points]
    assert marked <= {*base, *((p.result.mean_jct_h, p.result.cloud_cost_usd) for p in points)}


def test_labels_are_readable_on_every_colour() -> None:
    """A contrast of at least 4.5 (WCAG 2, AA) between each bar and its label."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in COLOURS:
        dark, light = sorted((luminance(colour), luminance(ink_on(colour))))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colour


def test_the_window_shows_a_short_trace_whole() -> None:
    spec = Spec(nodes=2, gpus_per_node=4)
    trace = busy(30)
    svg = picture(trace, run(trace, spec).outcomes, spec)
    assert [job for job in trace.ids if f">{job} waited" not in svg] == []


def test_the_window_shows_a_stay_that_ended_with_a_return_and_the_waits_around_it() -> None:
    spec = Spec(nodes=1, gpus_per_node=1, waiting="constant", factor=0.5, t_max_h=0.25)
    hour, one, none = np.ones(2), np.ones(2, np.int64), np.zeros(2)
    trace = Trace(["a", "b"], np.array([0.0, 0.1]), hour, one, none, none, one, hour)
    svg = picture(trace, run(trace, spec).outcomes, spec)
    assert re.findall("<title>(b.*?)(?:, 1 GPU)?</title>", svg) == [
        "b: 1 h on node 0",
        "b: 15 min on cloud 0",
        "b waited 30 min",
        "b waited 9 min",
    ]
    assert svg.count("stroke-dasharray") == svg.count("dashed: stopped to come home") == 1


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(SimulationError, match=r"pip install starburst-hybrid\[plots\]"):
        figures.require_matplotlib()
