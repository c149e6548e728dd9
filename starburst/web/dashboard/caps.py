"""Spending caps on the dashboard: those on all jobs, and queues' and users' that are nearly spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starburst.core.model.budget_values import SLACK, CapStatus
from starburst.core.model.decisions import AT_CAP
from starburst.core.steps.budget import amount
from starburst.domain.money import Money
from starburst.policy.caps import HOUR_S, Cap

#: Caps in the list; the others are counted.
SHOWN = 12
#: States of a cap, worst first: spent; spent or reserved in full; above its warning share; below it.
STATES = ("spent", "full", "near", "open")


@dataclass(frozen=True, slots=True)
class CapRow:
    """A cap in the list."""

    cap: Cap
    state: str
    spent: Money
    reserved: Money
    left: Money
    #: End of the window, scheduler seconds.
    end: float
    #: Seconds until the cap is spent at the present rate; None if the window ends first.
    lasts_s: float | None

    @property
    def whose(self) -> str:
        """The users and queues that the cap covers."""
        parts = [
            f"{key} {value}" for key, value in (("user", self.cap.user), ("queue", self.cap.queue)) if value
        ]
        return " in ".join(parts) or "all jobs"

    @property
    def share(self) -> float:
        """The spent share of the cap."""
        return _share(self.spent, self.cap.limit)

    @property
    def booked(self) -> float:
        """The spent or reserved share of the cap."""
        return _share(self.spent + self.reserved, self.cap.limit)

    @property
    def then(self) -> str:
        """The consequence of reaching the cap."""
        return AT_CAP[self.cap.then]


@dataclass(frozen=True, slots=True)
class CapsPanel:
    """The caps on the page."""

    shown: Sequence[CapRow] = ()
    #: Counts of caps that are not shown: near or spent; of queues and users, far from spent.
    near: int = 0
    far: int = 0
    #: The cap on all jobs per UTC day.
    day: CapRow | None = None


def caps_panel(standings: Sequence[CapStatus], now: float) -> CapsPanel:
    """Caps on all jobs in the order of the config, then other caps that are nearly reached, worst first."""
    lines = cap_lines(standings, now)
    ours = [line for line in lines if _is_on_all(line)]
    others = [line for line in lines if not _is_on_all(line)]
    near = [line for line in others if line.state != "open"]
    near.sort(key=lambda line: (STATES.index(line.state), -line.booked))
    shown = [*ours, *near][:SHOWN]
    day = next((line for line in ours if line.cap.per == "day"), None)
    return CapsPanel(shown, len(ours) + len(near) - len(shown), len(others) - len(near), day)


def cap_lines(standings: Sequence[CapStatus], now: float) -> list[CapRow]:
    """All caps in the order of the config."""
    return [_line(standing, now) for standing in standings]


def _line(standing: CapStatus, now: float) -> CapRow:
    cap = standing.cap
    lasts_s = None
    if standing.rate > 0 and not standing.is_reached:
        lasts_s = (cap.limit.micro_usd - standing.spent) / standing.rate * HOUR_S
    return CapRow(
        cap,
        _state(standing),
        amount(standing.spent),
        amount(standing.reserved),
        amount(standing.left),
        standing.end,
        lasts_s if lasts_s is not None and now + lasts_s < standing.end else None,
    )


def _state(standing: CapStatus) -> str:
    if standing.is_reached:
        return "spent"
    if standing.left <= SLACK:
        return "full"
    booked = standing.spent + standing.reserved
    return "near" if booked > 0 and booked >= standing.cap.warn_at * standing.cap.limit.micro_usd else "open"


def _is_on_all(line: CapRow) -> bool:
    return not (line.cap.queue or line.cap.user)


def _share(part: Money, whole: Money) -> float:
    return min(1.0, part.micro_usd / whole.micro_usd) if whole.micro_usd else 1.0
