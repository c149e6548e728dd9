"""Why runs that are starting do not run yet, as their machines say: above all, how far an image's pull is."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.core.model.events import RunStalled

log = structlog.get_logger()

#: Wall seconds between two reports of a run for the same reason, such as layers that arrive.
AGAIN_S = 30.0


class DelayReports:
    """The delays of all runs of one controller; `report` gets a new reason at once, other changes seldom.

    `wall` is in seconds.
    """

    def __init__(self, report: Callable[[RunStalled], None], wall: Callable[[], float]) -> None:
        self._report = report
        self._wall = wall
        #: By run: what was reported last, and when.
        self._told: dict[tuple[str, int], tuple[str, float]] = {}

    def heard(self, entry: RunEntry, rank: RankEntry, why: str) -> None:
        """Take in what a machine says of a task that does not run yet; "" is nothing."""
        if not why or rank.started or entry.stop is not None:
            return
        text = why if len(entry.ranks) == 1 else f"{rank.where}: {why}"
        told, at = self._told.get(entry.key, ("", 0.0))
        now = self._wall()
        same_reason = told.partition(":")[0] == text.partition(":")[0]
        if text == told or (same_reason and now - at < AGAIN_S):
            return
        self._told[entry.key] = text, now
        log.info("run-delayed", job=entry.job, attempt=entry.attempt, why=text)
        self._report(RunStalled(*entry.key, text))

    def drop(self, entry: RunEntry) -> None:
        """Forget a run that has started or is over."""
        self._told.pop(entry.key, None)
