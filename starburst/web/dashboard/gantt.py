"""A Gantt chart of one job from its decisions: waiting, starting, running and stopping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from starburst.store.listings.row_types import DecisionRow, JobRow

QUEUE, KEPT_OUT, CLOUD = "queue", "kept out", "cloud"
#: Possible distances of ticks, seconds.
STEPS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800),
)
MOST_TICKS = 7
ENDS = ("succeeded", "failed", "cancelled")
#: Decisions after which a job is held or blocked: it pauses after a failure or refusal, or others come first.
KEEPS_OUT = ("retries", "not-started", "held", "awaits", "turn")
#: Other decisions after which a job has no slots.
WAITS = (
    "waits",
    "waits-on",
    "no-offer",
    "capped",
    "lost",
    "suspended",
    "released",
)


@dataclass(frozen=True, slots=True)
class GanttSpan:
    """A phase of a job in one lane. `kind`: waits, pauses, starts, runs or stops. `end` None: not over."""

    lane: str
    kind: str
    start: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class GanttBar:
    """A span as drawn, in percent of the width."""

    kind: str
    x: float
    width: float
    start: float
    end: float | None


@dataclass(frozen=True, slots=True)
class Gantt:
    """Lanes from top to bottom, and the positions of the ticks in percent."""

    lanes: tuple[tuple[str, tuple[GanttBar, ...]], ...]
    ticks: tuple[tuple[float, float], ...]
    #: Position of a future deadline, in percent.
    deadline: float | None = None


def spans(row: JobRow, story: Sequence[DecisionRow]) -> list[GanttSpan]:
    """The spans of a job in order of time. A machine that boots belongs to the lane of the next run."""
    found = [GanttSpan(QUEUE, "waits", row.submitted_at)]
    for decision in story:
        change = _change(decision, found[-1])
        if change is not None:
            found[-1] = replace(found[-1], end=decision.at)
            if not change.kind:
                return _named(found, row.runs_on)
            found.append(change)
    return _named(found, row.runs_on)


def _change(decision: DecisionRow, last: GanttSpan) -> GanttSpan | None:
    """The span that a decision begins. None continues the present one; no kind: the chart ends."""
    kind, at, where = decision.kind, decision.at, str(decision.numbers.get("where", ""))
    if kind in ENDS:
        return GanttSpan(last.lane, "", at)
    if kind in KEEPS_OUT:
        return None if last.kind == "pauses" else GanttSpan(KEPT_OUT, "pauses", at)
    if kind in WAITS:
        return None if last.kind == "waits" else GanttSpan(QUEUE, "waits", at)
    if kind in ("placed", "shrinks"):
        return GanttSpan(where, "starts", at)
    if kind == "offloaded":
        return GanttSpan(CLOUD, "starts", at)
    if kind == "started":
        return GanttSpan(where, "runs", at)
    if kind in ("stopping", "returning"):
        return GanttSpan(last.lane, "stops", at)
    return None


def _named(found: Sequence[GanttSpan], runs_on: str) -> list[GanttSpan]:
    """Spans longer than zero; spans that begin in the cloud get the name of the run that follows."""
    named: list[GanttSpan] = []
    machines = runs_on
    for span in reversed(found):
        if span.lane != CLOUD:
            machines = span.lane if span.kind == "runs" else ""
        if span.end is None or span.end > span.start:
            named.append(replace(span, lane=machines or CLOUD) if span.lane == CLOUD else span)
    return named[::-1]


def draw(row: JobRow, story: Sequence[DecisionRow], now: float) -> Gantt:
    """The chart up to `now`, to the end of the job or, while it waits, to its deadline."""
    found = spans(row, story)
    begin = row.submitted_at
    end = max([now if span.end is None else span.end for span in found], default=now)
    deadline = row.deadline if row.phase == "queued" and row.deadline is not None else None
    if deadline is not None and deadline < now + 10 * max(now - begin, 60.0):
        end = max(end, deadline)
    else:
        deadline = None
    width = max(end - begin, 1.0)

    def percent(at: float) -> float:
        return round(100 * (at - begin) / width, 3)

    lanes: dict[str, list[GanttBar]] = {}
    for span in found:
        until = min(now, end) if span.end is None else span.end
        share = max(0.4, percent(until) - percent(span.start))
        bar = GanttBar(span.kind, percent(span.start), round(share, 3), span.start, span.end)
        lanes.setdefault(span.lane, []).append(bar)
    return Gantt(
        tuple((lane, tuple(bars)) for lane, bars in lanes.items()),
        tuple((percent(at), at) for at in ticks(begin, begin + width)),
        None if deadline is None else percent(deadline),
    )


def ticks(begin: float, end: float) -> list[float]:
    """Round times in the range, at most MOST_TICKS; days are UTC days."""
    step = next((s for s in STEPS_S if (end - begin) / s <= MOST_TICKS), 0)
    if not step:
        step = int((end - begin) / MOST_TICKS / 86_400 + 1) * 86_400
    first = -(-begin // step) * step
    return [first + n * step for n in range(MOST_TICKS + 1) if first + n * step <= end]
