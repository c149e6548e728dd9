"""The rules of the leader's lease: when a standby may lead, and until when a leader is certain of it.

No process compares its clock with another one's. A standby counts the lease's duration on its own clock,
from the moment at which it first saw the row's latest state. The leader counts its shorter deadline from the
moment at which it began its last successful renewal. The standby's span starts after the store's write and
the leader's before it, so two never act at once as long as the ratio of their clocks' rates is less than
duration : deadline. Commits do not rely on clocks at all: each is fenced by the epoch
(`starburst.store.leader`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from starburst.store.leader import LeaderRecord


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Seconds of the lease.

    Raises:
        ValueError: duration > deadline > 2 × renew does not hold; a leader could lose its lease although
            nothing is wrong.
    """

    #: Without a renewal for so long another process may take the lead.
    duration_s: float = 9.0
    #: So long after it began its last renewal a leader still acts.
    deadline_s: float = 6.0
    #: Pause between renewals, and between tries after one that failed.
    renew_s: float = 1.5
    #: Pause between the looks of a standby.
    look_s: float = 0.5

    def __post_init__(self) -> None:
        if not self.duration_s > self.deadline_s > 2 * self.renew_s > 0 < self.look_s:
            raise ValueError(
                f"lease: duration {self.duration_s} s > deadline {self.deadline_s} s > 2 × renewal "
                f"{self.renew_s} s must hold"
            )


TERMS = LeaseTerms()


class LeaseWatch:
    """What a process that does not lead has seen of the row, by its own clock."""

    def __init__(self, terms: LeaseTerms) -> None:
        self._terms = terms
        self._seen: LeaderRecord | None = None
        self._since = math.inf
        #: Whether the holder was seen to renew it: it lives.
        self.renewed = False

    def observe(self, record: LeaderRecord | None, now: float) -> None:
        """Note what a read, which ended at `now`, has found."""
        before, self._seen = self._seen, record
        same = before is not None and record is not None and _state(before) == _state(record)
        if not same:
            self._since = now
            self.renewed = before is not None and record is not None and before.epoch == record.epoch

    def may_take(self, now: float, home: str, *, locked: bool) -> bool:
        """Whether nobody leads: the lead was given back, the lease has passed, or its holder is known to be
        gone, because it held the lock of the home that this process holds now.

        `locked` is whether this process holds the lock of its home, and `home` the key of that, or "".
        """
        record = self._seen
        if record is None or not record.holder or (home and home == record.home):
            return True
        if not record.renews:  # only the lock of its home, which is the store's, says whether it lives
            return locked
        return now - self._since > self._terms.duration_s


def _state(record: LeaderRecord) -> tuple[int, int]:
    return record.epoch, record.beat
