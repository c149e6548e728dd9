"""Picture of a schedule (SVG): a row per cluster GPU, a row per instance, and lines for waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from starburst.domain.node import Node
from starburst.policy.waiting import hours

LEFT, TOP, ROW, GAP, WIDTH = 130, 78, 15, 10, 1010
COLOURS = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2"),
    *("#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#86bcb6"),
)
#: Pixels: the shortest wait whose job is named beside it, and the height of such a name.
NAMED_WAIT, NAME_HEIGHT = 12.0, 8.0
INK, FAINT, CLOUD = "#222", "#bbbbbb", "#f3f7fc"


@dataclass(frozen=True, slots=True)
class Span:
    """A run of a job on one node or instance. Times in scheduler seconds."""

    job_id: str
    where: str
    in_cloud: bool
    gpus: int
    start: float
    end: float
    #: Ended early: stopped for a return, preempted or lost.
    cut: bool = False


@dataclass(frozen=True, slots=True)
class WaitSpan:
    """A job's time in the queue."""

    job_id: str
    start: float
    end: float


def gantt(
    title: str, subtitle: str, spans: Sequence[Span], waits: Sequence[WaitSpan], nodes: Sequence[Node]
) -> str:
    """The picture as SVG text; deterministic."""
    begin = min((w.start for w in waits), default=min((s.start for s in spans), default=0.0))
    end = max((s.end for s in spans), default=begin + 1)
    colour = {
        job_id: COLOURS[i % len(COLOURS)] for i, job_id in enumerate(dict.fromkeys(w.job_id for w in waits))
    }
    rows = _Rows(begin, max(end - begin, 1e-9), colour)
    for node in nodes:
        rows.lanes([s for s in spans if s.where == node.name], max(1, node.capacity.gpus), node.name, "")
    machines = dict.fromkeys(s.where for s in sorted(spans, key=lambda s: s.start) if s.in_cloud)
    rows.gap()
    for name in machines:
        rows.lanes([s for s in spans if s.where == name], 1, name, CLOUD)
    rows.gap()
    rows.queue(waits)
    return rows.svg(title, subtitle)


class _Rows:
    def __init__(self, begin: float, length: float, colour: dict[str, str]) -> None:
        self._begin, self._length, self._colour = begin, length, colour
        self._y = TOP
        self._parts: list[str] = []

    def gap(self) -> None:
        self._y += GAP

    def lanes(self, spans: list[Span], lanes: int, label: str, background: str) -> None:
        """Bars in `lanes` rows; a span of g GPUs fills g free rows (the actual GPU indices are unknown)."""
        free = [0.0] * lanes
        if background:
            self._parts.append(_rect(LEFT, self._y, WIDTH, ROW * lanes, background))
        for lane in range(lanes):
            name = f"{label} · {lane}" if lanes > 1 else label
            self._text(LEFT - 8, self._y + lane * ROW + ROW - 4, name, "end")
            y = self._y + (lane + 1) * ROW
            self._parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y}" y2="{y}" stroke="#eee"/>')
        for span in sorted(spans, key=lambda s: (s.start, s.job_id)):
            width = min(lanes, max(1, span.gpus))
            fitting = sorted(range(lanes), key=lambda lane: (free[lane] > span.start + 1e-6, lane))[:width]
            for place, lane in enumerate(sorted(fitting)):
                free[lane] = span.end
                self._bar(span, self._y + lane * ROW, label=place == 0)
        self._y += lanes * ROW

    def queue(self, waits: Sequence[WaitSpan]) -> None:
        self._text(LEFT - 8, self._y + 9, "waiting", "end")
        named: tuple[float, float] = (-1e9, 0.0)
        for row, wait in enumerate(waits):
            y = self._y + 4 + row * 3
            x1, x2 = self._x(wait.start), self._x(wait.end)
            self._parts.append(
                f'<line x1="{x1:.1f}" x2="{max(x2, x1 + 1):.1f}" y1="{y}" y2="{y}" stroke-width="2" '
                f'stroke="{self._colour[wait.job_id]}"><title>{escape(wait.job_id)} waited '
                f"{hours(wait.end - wait.start)}</title></line>"
            )
            if x2 - x1 >= NAMED_WAIT and (y - named[0] >= NAME_HEIGHT or x2 > named[1]):
                self._parts.append(
                    f'<text x="{x2 + 3:.1f}" y="{y + 3}" font-size="8">{escape(wait.job_id)}</text>'
                )
                named = y, x2 + 3 + 5.0 * len(wait.job_id)
        self._y += 8 + 3 * len(waits)

    def svg(self, title: str, subtitle: str) -> str:
        height = self._y + 34
        self._axis(height - 26)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
            f'font-family="system-ui, sans-serif" font-size="10" fill="{INK}">'
            f'<rect width="100%" height="100%" fill="#fff"/>'
            f'<text x="16" y="28" font-size="18" font-weight="600">{escape(title)}</text>'
            f'<text x="16" y="48" font-size="12" fill="#555">{escape(subtitle)}</text>'
        )
        return "\n".join([head, *self._parts, "</svg>\n"])

    def _bar(self, span: Span, y: int, *, label: bool) -> None:
        x1, x2 = self._x(span.start), self._x(span.end)
        tip = f"{span.job_id}: {hours(span.end - span.start)} on {span.where}, {span.gpus} GPU"
        style = ' fill-opacity=".55" stroke="#c00" stroke-dasharray="3 2"' if span.cut else ' stroke="#fff"'
        self._parts.append(
            f'<rect x="{x1:.1f}" y="{y + 1}" width="{max(x2 - x1, 1):.1f}" height="{ROW - 2}" rx="2" '
            f'fill="{self._colour.get(span.job_id, FAINT)}"{style}><title>{escape(tip)}</title></rect>'
        )
        if label and x2 - x1 > 6.0 * len(span.job_id):
            ink = ink_on(self._colour.get(span.job_id, FAINT))
            self._text(x1 + 3, y + ROW - 4, span.job_id, "start", INK if span.cut else ink)

    def _axis(self, y: int) -> None:
        step = _tick(self._length)
        ticks = int(self._length / step) + 1
        for i in range(ticks):
            x = self._x(self._begin + i * step)
            self._parts.insert(0, f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{y}" stroke="#ddd"/>')
            self._text(x, y + 14, f"+{hours(i * step)}" if i else "0", "middle", "#555")

    def _x(self, at: float) -> float:
        return LEFT + WIDTH * (at - self._begin) / self._length

    def _text(self, x: float, y: float, text: str, anchor: str, fill: str = INK) -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
        )


def ink_on(colour: str) -> str:
    """Black or white, whichever is the more readable on a colour `#rrggbb`; by its relative luminance."""
    red, green, blue = ((int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5))
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "#000000"


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>'


def _tick(length: float) -> float:
    """A round tick interval that yields at most twelve intervals."""
    for step in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 604800):
        if length / step <= 12:
            return float(step)
    return length / 10
