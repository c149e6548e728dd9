"""Progress reports of tasks on rented machines, as exchanges bring them; nothing of it is journaled.

A machine is told which report of each task is known here, by its digest, and returns those that differ. Jobs
write these reports, so each side treats one as untrusted input.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping

from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.core.model.events import Progress
from starburst.runs.supervisor.progress_report import MAX_BYTES, ProgressReport, digest, parse_report

#: Wall seconds between two questions for reports to one machine, however often it is talked to.
HEAR_S = 1.0


class ProgressCollector:
    """The progress of all runs of one controller; of a gang, that of its slowest task.

    `report` gets each change of a run's progress. `wall` is in seconds.
    """

    def __init__(self, report: Callable[[Progress], None], wall: Callable[[], float]) -> None:
        self._report = report
        self._wall = wall
        #: By run and task: the digest of the last report, and the report unless it was invalid.
        self._known: dict[tuple[str, int], dict[int, tuple[str, ProgressReport | None]]] = {}
        self._reported: dict[tuple[str, int], Progress] = {}
        self._asked_at: dict[str, float] = {}

    def ask(self, instance_id: str, tasks: Mapping[str, tuple[RunEntry, RankEntry]]) -> dict[str, str]:
        """The digests of known reports by task, for the machine to return others; {} if it is too soon."""
        now = self._wall()
        if 0 <= now - self._asked_at.get(instance_id, -HEAR_S) < HEAR_S:
            return {}
        self._asked_at[instance_id] = now
        return {name: self._digest(entry, rank) for name, (entry, rank) in tasks.items()}

    def heard(self, entry: RunEntry, rank: RankEntry, answer: object) -> None:
        """Take in what a machine returned for a task; None if nothing is new."""
        text = _decoded(answer)
        if text is None or entry.end is not None:
            return
        known = self._known.setdefault(entry.key, {})
        known[entry.number(rank)] = (digest(text), parse_report(text))
        reports = [report for _, report in known.values() if report is not None]
        if not reports:
            return
        slowest = max(reports, key=lambda report: report.to_go)
        progress = Progress(*entry.key, slowest.done, slowest.total, slowest.per_s)
        if self._reported.get(entry.key) != progress:
            self._reported[entry.key] = progress
            self._report(progress)

    def drop(self, entry: RunEntry) -> None:
        """Forget a run that is over."""
        self._known.pop(entry.key, None)
        self._reported.pop(entry.key, None)

    def gone(self, instance_id: str) -> None:
        """Forget a machine that is gone."""
        self._asked_at.pop(instance_id, None)

    def _digest(self, entry: RunEntry, rank: RankEntry) -> str:
        return self._known.get(entry.key, {}).get(entry.number(rank), ("", None))[0]


def _decoded(answer: object) -> bytes | None:
    """The bytes of a report; None if there is none, or it is too long or no base64."""
    if not isinstance(answer, str) or len(answer) > 2 * MAX_BYTES:
        return None
    try:
        text = base64.b64decode(answer)
    except (binascii.Error, ValueError):
        return None
    return text if len(text) <= MAX_BYTES else None
