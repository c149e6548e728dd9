"""Terminal screen of the demo: nodes with GPUs, cloud, queue with deadlines, decisions and costs."""

from __future__ import annotations

from collections import deque

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from starburst.core.model.decisions import Decision
from starburst.core.model.phases import StopReason
from starburst.core.scheduler import Scheduler
from starburst.domain.job import Site
from starburst.domain.money import Money
from starburst.policy.waiting import hours

COLOURS = (
    "cyan",
    "yellow",
    "green",
    "red",
    "magenta",
    "blue",
    "bright_cyan",
    "bright_yellow",
    "bright_green",
)
NEWS = 14
#: Least number of screen lines for everything but the decisions.
REST = 12
#: Kinds of decisions that are shown; mere confirmations of starts and ends are omitted.
TELLING = {"waits", "placed", "offloaded", "returning", "stays-away", "no-offer", "lost", "failed", "gone"}


class View:
    """Keeps the latest decisions and draws the scheduler's current state."""

    def __init__(self, scheduler: Scheduler, start: float, total: int) -> None:
        self._scheduler = scheduler
        self._start = start
        self._total = total
        self._news: deque[Decision] = deque(maxlen=NEWS)
        self._ended = 0

    def hear(self, decisions: list[Decision]) -> None:
        """Add the decisions of a step."""
        self._news.extend(d for d in decisions if d.kind in TELLING)
        self._ended += sum(d.kind in ("succeeded", "failed", "cancelled") for d in decisions)

    def draw(self, now: float, height: int) -> RenderableType:
        """The whole screen, `height` lines, at scheduler time `now`."""
        layout = Layout()
        news = max(3, min(NEWS, height - REST))
        layout.split_column(
            Layout(self._head(now), size=3),
            Layout(name="middle"),
            Layout(self._decisions(news), size=news + 2),
        )
        layout["middle"].split_row(
            Layout(self._cluster()), Layout(self._cloud(now)), Layout(self._queue(now))
        )
        return layout

    def _head(self, now: float) -> RenderableType:
        s = self._scheduler
        running = sum((m.cost(now) for m in s.state.fleet.instances.values()), Money())
        parts = [
            f"[b]starburst demo[/]  {hours(now - self._start)} of cluster time",
            f"{self._ended}/{self._total} jobs done",
            f"{len(s.state.queue)} waiting",
            f"cloud bill [b]{s.state.fleet.settled + running}[/]",
        ]
        return Panel("   ·   ".join(parts))

    def _cluster(self) -> RenderableType:
        lines = []
        for node in self._scheduler.state.capacity.nodes:
            line = Text(f"{node.name}  ")
            used = 0
            for record in self._scheduler.state.jobs.values():
                for slot in record.slots if record.site is Site.CLUSTER and record.alive else ():
                    if slot.where == node.name:
                        line.append("█" * slot.resources.gpus, style=_colour(record.seq))
                        used += slot.resources.gpus
            line.append("░" * (node.capacity.gpus - used), style="dim")
            lines.append(line)
        for record in self._scheduler.state.jobs.values():
            if record.alive and record.site is Site.CLUSTER:
                home = " ← home" if record.returned else ""
                line = Text("● ", style=_colour(record.seq))
                line.append(f"{record.id} {record.phase.value}{home}", style="default")
                lines.append(line)
        return Panel(Group(*lines), title="cluster", title_align="left")

    def _cloud(self, now: float) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        for machine in self._scheduler.state.fleet.instances.values():
            records = [self._scheduler.state.jobs[j] for j in machine.job_ids]
            colour = _colour(records[0].seq) if records else "dim"
            who = ", ".join(r.id for r in records) or "[dim]ending[/]"
            stopping = " → home" if any(r.stop_why is StopReason.RETURN for r in records) else ""
            state = machine.phase.value if machine.phase.value == "launching" else str(machine.cost(now))
            grid.add_row(f"[{colour}]●[/] {who}{stopping}", machine.offer.name, state)
        return Panel(grid, title="cloud", title_align="left")

    def _queue(self, now: float) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        for record in list(self._scheduler.state.queue)[:12]:
            total = max(record.deadline - record.queued_at, 1e-9)
            left = max(0.0, record.deadline - now)
            blocks = min(8, round(8 * left / total)) if left < float("inf") else 8
            bar = "▰" * blocks + "▱" * (8 - blocks)
            leaves = hours(left) if left < float("inf") else "no limit"
            grid.add_row(record.id, f"{record.job.resources.gpus} GPU", bar, leaves)
        return Panel(grid, title="waiting · until they leave", title_align="left")

    def _decisions(self, lines: int) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for decision in list(self._news)[-lines:]:
            grid.add_row(Text(decision.subject, style="bold"), Text(decision.reason))
        return Panel(grid, title="decisions", title_align="left")


def _colour(seq: int) -> str:
    return COLOURS[seq % len(COLOURS)]


def line(decision: Decision, start: float) -> str:
    """A decision as one line, for output that is not a terminal."""
    return f"{hours(decision.at - start):>8}  {decision.subject:<14} {decision.kind:<12} {decision.reason}"
