"""What the rows of a decision log say, replayed by a model of its own that shares no code with Starburst."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

OVER = {"succeeded", "failed", "cancelled"}
MOVE = "all that it moves to is up"


#: The pack window of the run (bench/live.py).
PACK_WINDOW_S = 120.0


@dataclass(frozen=True)
class Line:
    """A row of the table, as it lies there."""

    seq: int
    at: float
    subject: str
    event: str
    kind: str
    reason: str
    numbers: dict[str, Any]


@dataclass
class Bar:
    """A stretch of a job's life; `end` is None while it goes on."""

    kind: str
    lane: str
    start: float
    end: float | None = None


@dataclass
class Tale:
    """A job as its rows tell it."""

    id: str
    lines: list[Line] = field(default_factory=list)
    #: All that it may be now: of some steps no row is written.
    phases: set[str] = field(default_factory=lambda: {"offloading"})
    where: str = ""
    site: str = ""
    attempt: int = 0
    #: When it leaves; None if the rows do not say.
    deadline: float | None = None
    #: The row that set the phase.
    last: Line | None = None
    started: Line | None = None
    #: Machines that it leaves for.
    awaits: set[str] = field(default_factory=set)
    targets: str = ""
    came_home: bool = False
    bars: list[Bar] = field(default_factory=list)

    def begin(self, kind: str, lane: str, at: float) -> None:
        """Another stretch."""
        if self.bars and self.bars[-1].kind == kind and kind in ("waits", "pauses"):
            return
        if self.bars:
            self.bars[-1].end = at
        self.bars.append(Bar(kind, lane, at))


@dataclass
class Rented:
    """A machine as its rows tell it."""

    jobs: list[str]
    at: float
    offer: str
    phase: str = "launching"
    cut_off: bool = False


@dataclass
class Past:
    """Everything that a log tells."""

    lines: list[Line]
    jobs: dict[str, Tale] = field(default_factory=dict)
    machines: dict[str, Rented] = field(default_factory=dict)


def read(database: Path) -> list[Line]:
    """The rows, by nothing but SQL."""
    with closing(sqlite3.connect(database)) as conn:
        rows = conn.execute(
            "SELECT seq, at, subject, event, kind, reason, numbers FROM decisions ORDER BY seq"
        )
        return [Line(*row[:6], json.loads(row[6])) for row in rows]


def replay(lines: Iterable[Line], arrivals: dict[str, float], now: float) -> Past:
    """What they amount to by now; `arrivals`: when each job was submitted."""
    past = Past(list(lines))
    for name, at in arrivals.items():
        past.jobs[name] = Tale(name)
        past.jobs[name].begin("waits", "queue", at)
    for line in past.lines:
        if line.subject in past.jobs:
            tale = past.jobs[line.subject]
            tale.lines.append(line)
            STEPS.get(line.kind, _nothing)(tale, line)
            if line.kind == "offloaded":
                its = [
                    m
                    for m, rented in past.machines.items()
                    if rented.at == line.at and tale.id in rented.jobs
                ]
                tale.awaits.update(its)
                if tale.awaits and all(past.machines[m].phase == "ready" for m in tale.awaits):
                    _starting(tale)
        elif not line.kind.startswith("cap-"):
            _machine(past, line)
    # Waits are predicted anew whenever a job joins the queue.
    one_joined = any(
        tale.last is not None and tale.last.at > now - PACK_WINDOW_S for tale in past.jobs.values()
    )
    for tale in past.jobs.values():
        if tale.phases == {"queued"} and tale.deadline is not None and tale.deadline <= now:
            tale.phases = {"offloading"}  # it waits for company, and no row is written before that is over
        elif tale.phases == {"queued"} and one_joined:
            tale.phases = {"queued", "offloading"}  # the same, if its predicted wait is dear
    return past


def _machine(past: Past, line: Line) -> None:
    if line.kind == "launched":
        jobs = line.numbers["jobs"].split(", ")
        past.machines[line.subject] = Rented(jobs, line.at, line.numbers["offer"])
        for tale in (past.jobs[job] for job in jobs):
            if tale.last is not None and (tale.last.kind, tale.last.at) == ("offloaded", line.at):
                tale.awaits.add(line.subject)
        return
    machine = past.machines[line.subject]
    if line.kind == "ready":
        machine.phase = "ready"
        for tale in past.jobs.values():
            if line.subject in tale.awaits and all(past.machines[m].phase == "ready" for m in tale.awaits):
                _starting(tale)
    elif line.kind in ("terminating", "fenced"):
        machine.phase = "terminating"
    elif line.kind in ("unreachable", "reachable"):
        machine.cut_off = line.kind == "unreachable"
    elif line.kind in ("gone", "launch-failed"):
        machine.phase = "gone"
        for tale in past.jobs.values():
            if tale.phases & {"running", "starting", "stopping"} and line.subject in tale.where.split(", "):
                tale.phases = {"stopping"}  # what is left of a gang is told to end; no row says so


def _starting(tale: Tale) -> None:
    tale.phases, tale.where = {"starting"}, ", ".join(sorted(tale.awaits))
    tale.attempt += 1
    tale.awaits = set()


def _wait(tale: Tale, line: Line, phases: set[str], deadline: float | None = None) -> None:
    _rest(tale, line, phases, deadline)
    tale.begin("waits", "queue", line.at)


def _pause(tale: Tale, line: Line, phases: set[str]) -> None:
    _rest(tale, line, phases)
    tale.begin("pauses", "kept out", line.at)


def _rest(tale: Tale, line: Line, phases: set[str], deadline: float | None = None) -> None:
    tale.phases, tale.deadline, tale.last = phases, deadline, line
    tale.where, tale.awaits, tale.targets = "", set(), ""


def _waits(tale: Tale, line: Line) -> None:
    wait_s = line.numbers["wait_s"]
    _wait(tale, line, {"queued"}, inf if wait_s is None else line.at + wait_s)


def _placed(tale: Tale, line: Line) -> None:
    tale.phases, tale.last, tale.site, tale.where = {"starting"}, line, "cluster", line.numbers["where"]
    tale.attempt += 1
    tale.begin("starts", tale.where, line.at)


def _offloaded(tale: Tale, line: Line) -> None:
    tale.phases, tale.last, tale.site, tale.where = {"offloading"}, line, "cloud", ""
    tale.awaits = set(filter(None, line.numbers["joins"].split(", ")))
    tale.begin("starts", "cloud", line.at)


def _started(tale: Tale, line: Line) -> None:
    tale.phases, tale.last, tale.started, tale.where = {"running"}, line, line, line.numbers["where"]
    tale.attempt, tale.awaits, tale.targets = line.numbers["attempt"], set(), ""
    tale.begin("runs", tale.where, line.at)


def _stopping(tale: Tale, line: Line) -> None:
    tale.phases, tale.last = {"stopping"}, line
    if line.kind == "returning":
        tale.came_home = True
    elif line.numbers["why"] == MOVE:
        tale.phases = {"stopping", "starting"}  # no row says that it starts again where it moved to
    elif line.numbers["why"].endswith("is spent"):
        tale.phases = {"stopping", "queued", "offloading"}  # nor that it queues again
    tale.begin("stops", tale.bars[-1].lane, line.at)


def _over(tale: Tale, line: Line) -> None:
    tale.phases, tale.last, tale.awaits = {line.kind}, line, set()
    tale.bars[-1].end = line.at


def _moving(tale: Tale, line: Line) -> None:
    tale.targets = line.numbers["new"] if line.kind == "moving" else ""


def _nothing(tale: Tale, line: Line) -> None:
    """It says nothing of where the job stands."""


def _retries(tale: Tale, line: Line) -> None:
    """It pauses, or keeps its machine till it starts there again, of which no row says more."""
    _pause(tale, line, {"offloading", "starting"} if line.numbers.get("on") else {"blocked"})


STEPS = {
    "held": lambda tale, line: _pause(tale, line, {"held"}),
    "awaits": lambda tale, line: _pause(tale, line, {"blocked"}),
    "turn": lambda tale, line: _pause(tale, line, {"blocked"}),
    "retries": _retries,
    "not-started": lambda tale, line: _pause(tale, line, {"blocked"}),
    "released": lambda tale, line: _wait(tale, line, {"offloading"}),
    "waits": _waits,
    "waits-on": lambda tale, line: _wait(tale, line, {"queued"}, line.at + line.numbers["left_s"]),
    "no-offer": lambda tale, line: _wait(tale, line, {"queued", "offloading"}),
    "capped": lambda tale, line: _wait(tale, line, {"queued", "offloading"}),
    "lost": lambda tale, line: _wait(tale, line, {"queued", "offloading"}),
    "placed": _placed,
    "offloaded": _offloaded,
    "started": _started,
    "stopping": _stopping,
    "returning": _stopping,
    "moving": _moving,
    "unmoved": _moving,
    **dict.fromkeys(OVER, _over),
}
