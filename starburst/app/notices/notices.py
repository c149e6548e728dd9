"""Which notices follow from decisions and reaped machines, and which rule wants which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from starburst.app.config.notify import NotifyRule
from starburst.app.daemon.orphan_ledger import ReapedMachine
from starburst.policy.caps import Cap
from starburst.store.listings.row_types import DecisionRow, JobRow
from starburst.visible import visible

#: Events by kind of decision.
EVENTS = {
    "succeeded": ("ended",),
    "failed": ("ended", "failed"),
    "cancelled": ("ended",),
    "offloaded": ("burst",),
    "cap-warned": ("cap-warned",),
    "cap-reached": ("cap-reached",),
}
#: Lines of a message; the rest is counted.
MOST_LINES = 30


@dataclass(frozen=True, slots=True)
class Notice:
    """One line, and whom it concerns; without user and queue it concerns everybody."""

    events: tuple[str, ...]
    text: str
    user: str = ""
    queue: str = ""


def of_decisions(
    rows: Iterable[DecisionRow], jobs: Mapping[str, JobRow], caps: Mapping[str, Cap]
) -> list[Notice]:
    """The notices of some decisions; `jobs` by id, `caps` by name."""
    found = []
    for row in rows:
        if row.kind not in EVENTS:
            continue
        job, cap = jobs.get(row.subject), caps.get(row.subject)
        user, queue = (job.user, job.queue) if job is not None else ("", "")
        if cap is not None:
            user, queue = cap.user or "", cap.queue or ""
        what = f"job {row.subject}" if job is not None else row.subject
        found.append(Notice(EVENTS[row.kind], f"{what}: {row.reason}", user, queue))
    return found


def of_machines(machines: Iterable[ReapedMachine]) -> list[Notice]:
    """The notices of machines that the reaper ended."""
    return [
        Notice(("leaked",), f"machine {one.id} ({one.offer}) was ended, as nothing claims it: {one.why}")
        for one in machines
    ]


def wanted(rule: NotifyRule, notices: Iterable[Notice]) -> list[Notice]:
    """The notices that a rule asks for."""
    return [
        notice
        for notice in notices
        if set(rule.on) & set(notice.events)
        and rule.user in (None, notice.user)
        and rule.queue in (None, notice.queue)
    ]


def message(notices: Sequence[Notice]) -> str:
    """The notices as one message, without control characters."""
    lines = [visible(notice.text) for notice in notices[:MOST_LINES]]
    rest = len(notices) - len(lines)
    return "\n".join([*lines, *([f"and {rest} more: starburst events"] if rest else [])])
