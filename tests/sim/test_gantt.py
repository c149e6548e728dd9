"""The picture of a schedule is well-formed, complete and the same for the same input."""

from __future__ import annotations

from xml.etree import ElementTree

from sim.reports.gantt import Span, WaitSpan, gantt
from tests.builders import node

SPANS = [
    Span("a", "n0", False, 2, 0, 3600),
    Span("b & <c>", "i-000001", True, 1, 600, 1200, cut=True),
    Span("b & <c>", "n0", False, 1, 1200, 4000),
]
WAITS = [WaitSpan("a", 0, 0), WaitSpan("b & <c>", 0, 600)]


def titles(svg: str) -> list[str]:
    return [
        element.text or ""
        for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")
    ]


def test_waits_that_can_be_seen_are_named_unless_a_name_is_there_already() -> None:
    waits = [WaitSpan(name, 0, 600 + n) for n, name in enumerate(("one", "two", "three", "four"))]
    svg = gantt("t", "s", SPANS, [*waits, WaitSpan("blink", 0, 1)], [node("n0", 4)])
    assert [name for name in ("one", "two", "three", "four", "blink") if f">{name}</text>" in svg] == [
        "one",
        "four",
    ]


def test_every_run_has_a_bar_per_gpu_and_every_wait_a_line() -> None:
    svg = gantt("title", "subtitle", SPANS, WAITS, [node("n0", 4)])
    assert titles(svg) == [
        *["a: 1 h on n0, 2 GPU"] * 2,
        "b & <c>: 46.7 min on n0, 1 GPU",
        "b & <c>: 10 min on i-000001, 1 GPU",
        "a waited 0 s",
        "b & <c> waited 10 min",
    ]
    assert svg.count("stroke-dasharray") == 1, "the run that was cut short"


def test_the_same_schedule_gives_the_same_bytes() -> None:
    draw = [gantt("t", "s", SPANS, WAITS, [node("n0", 4)]) for _ in range(2)]
    assert draw[0] == draw[1]


def test_nothing_to_show_is_still_a_picture() -> None:
    assert titles(gantt("t", "s", [], [], [])) == []
