"""The section `caps` of starburst.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from starburst.app.config.fields import NonNegative, Section
from starburst.domain.money import Money
from starburst.policy.caps import Cap, named_twice


class CapConfig(Section):
    """What may be spent in the cloud in a window of time."""

    usd: NonNegative = Field(description="dollars per window")
    per: Literal["hour", "day", "week", "month"] = Field(
        description="a window of the UTC calendar; weeks begin on Monday"
    )
    queue: str | None = Field(None, min_length=1, description="for the jobs of this queue; null is all")
    user: str | None = Field(None, min_length=1, description="for the jobs of this user; null is all")
    warn_at: float = Field(
        0.8, ge=0, le=1, allow_inf_nan=False, description="the share at which it is said in the log"
    )
    then: Literal["stop", "return", "finish"] = Field(
        "stop",
        description="when all is spent: finish: runs may end, nothing more is rented; return: jobs that "
        "save their progress queue again; stop: all runs are told to end and queue again",
    )

    def cap(self) -> Cap:
        """The cap as a core value."""
        return Cap(Money.of(self.usd), self.per, self.queue, self.user, self.warn_at, self.then)


def _once(entries: list[CapConfig]) -> list[CapConfig]:
    twice = named_twice(caps_of(entries))
    if twice is not None:
        raise ValueError(f"{twice} stands there twice; keep the smaller one")
    return entries


CapsConfig = Annotated[list[CapConfig], AfterValidator(_once)]


def caps_of(entries: Iterable[CapConfig]) -> tuple[Cap, ...]:
    """The caps as core values."""
    return tuple(entry.cap() for entry in entries)
