"""What tasks on rented machines say of their progress, as exchanges bring it; nothing of it is noted.

A machine is told which report of each task is known here and gives back those that are others. Both ends take
a report for anything that somebody may have put there.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping

from starburst.clouds.sky.journal import RankNote, RunNote
from starburst.core.model.events import Progress
from starburst.runs.supervisor.progress_report import MAX_BYTES, ProgressReport, digest, parse_report

#: Wall seconds between two questions to one machine, however often there is an exchange with it.
HEAR_S = 1.0


class Hearing:
    """The reports of all runs of one controller. `report` is told what is new of a run."""

    def __init__(self, report: Callable[[Progress], None], wall: Callable[[], float]) -> None:
        self._report = report
        self._wall = wall
        #: Each task's last report, and by what it is known there.
        self._said: dict[tuple[str, int], dict[int, tuple[str, ProgressReport | None]]] = {}
        self._told: dict[tuple[str, int], Progress] = {}
        self._asked_at: dict[str, float] = {}

    def ask(self, instance_id: str, mine: Mapping[str, tuple[RunNote, RankNote]]) -> dict[str, str]:
        """Which reports a machine is to give back, by task: those not known by this digest."""
        now = self._wall()
        if 0 <= now - self._asked_at.get(instance_id, -HEAR_S) < HEAR_S:
            return {}
        self._asked_at[instance_id] = now
        return {name: self._digest(note, rank) for name, (note, rank) in mine.items()}

    def heard(self, note: RunNote, rank: RankNote, answer: object) -> None:
        """What a machine gave back of a task, if it did."""
        text = _decoded(answer)
        if text is None or note.end is not None:
            return
        self._said.setdefault(note.key, {})[note.number(rank)] = (digest(text), parse_report(text))
        said = [report for _, report in self._known(note).values() if report is not None]
        if not said:
            return
        slowest = max(said, key=lambda report: report.to_go)
        progress = Progress(*note.key, slowest.done, slowest.total, slowest.per_s)
        if self._told.get(note.key) != progress:
            self._told[note.key] = progress
            self._report(progress)

    def drop(self, note: RunNote) -> None:
        """A run is over."""
        self._said.pop(note.key, None)
        self._told.pop(note.key, None)

    def gone(self, instance_id: str) -> None:
        """A machine is."""
        self._asked_at.pop(instance_id, None)

    def _digest(self, note: RunNote, rank: RankNote) -> str:
        return self._known(note).get(note.number(rank), ("", None))[0]

    def _known(self, note: RunNote) -> dict[int, tuple[str, ProgressReport | None]]:
        return self._said.get(note.key, {})


def _decoded(answer: object) -> bytes | None:
    """A report as it came; None if none came, or what came is none."""
    if not isinstance(answer, str) or len(answer) > 2 * MAX_BYTES:
        return None
    try:
        text = base64.b64decode(answer)
    except (binascii.Error, ValueError):
        return None
    return text if len(text) <= MAX_BYTES else None
