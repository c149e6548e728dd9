"""What the faults of a day befall: a home, the account it rents on, and who else is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from starburst.domain.cloud import InstancePhase
from tests.sky_lab.day.account import Account
from tests.sky_lab.day.neighbours import Neighbours
from tests.sky_lab.deployment import Deployment

#: Makes a fault good.
Undo: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class World:
    """All of it."""

    at: Deployment
    account: Account
    neighbours: Neighbours

    def launches(self) -> bool:
        """Whether a machine is on its way, by the home's word."""
        return any(record.phase is InstancePhase.LAUNCHING for record in self.at.records())
