"""Caps on spending as the page shows them: those on everybody, and of queues and users who is near theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starburst.core.model.decisions import AT_CAP
from starburst.core.steps.budget import SLACK, Standing, amount
from starburst.domain.money import Money
from starburst.policy.caps import HOUR_S, Cap

#: How many are shown; the rest is counted.
SHOWN = 12
#: States of a cap, the worst first: all is spent; all is spent or set aside; people should know; all is well.
STATES = ("spent", "full", "near", "open")


@dataclass(frozen=True, slots=True)
class CapRow:
    """One cap on the page."""

    cap: Cap
    state: str
    spent: Money
    reserved: Money
    left: Money
    #: When its window ends, scheduler seconds.
    end: float
    #: Seconds until all is spent as things cost now; None if that is not in this window.
    lasts_s: float | None

    @property
    def whose(self) -> str:
        """Whom it covers."""
        parts = [
            f"{key} {value}" for key, value in (("user", self.cap.user), ("queue", self.cap.queue)) if value
        ]
        return " in ".join(parts) or "everybody"

    @property
    def share(self) -> float:
        """Of the cap that is spent."""
        return _share(self.spent, self.cap.limit)

    @property
    def booked(self) -> float:
        """Of the cap that is spent or set aside."""
        return _share(self.spent + self.reserved, self.cap.limit)

    @property
    def then(self) -> str:
        """What happens when all is spent."""
        return AT_CAP[self.cap.then]


@dataclass(frozen=True, slots=True)
class CapsPanel:
    """All of them, as far as they are shown."""

    shown: Sequence[CapRow] = ()
    #: Others that are near or spent; and those of queues and users that are far from it.
    near: int = 0
    far: int = 0
    #: What everybody may spend in a day of the UTC calendar.
    day: CapRow | None = None


def caps_panel(standings: Sequence[Standing], now: float) -> CapsPanel:
    """Those on everybody in the order of the config, then those of others who are near, the worst first."""
    lines = [_line(standing, now) for standing in standings]
    ours = [line for line in lines if _is_on_all(line)]
    others = [line for line in lines if not _is_on_all(line)]
    near = [line for line in others if line.state != "open"]
    near.sort(key=lambda line: (STATES.index(line.state), -line.booked))
    shown = [*ours, *near][:SHOWN]
    day = next((line for line in ours if line.cap.per == "day"), None)
    return CapsPanel(shown, len(ours) + len(near) - len(shown), len(others) - len(near), day)


def _line(standing: Standing, now: float) -> CapRow:
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


def _state(standing: Standing) -> str:
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
