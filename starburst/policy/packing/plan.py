"""What a packer answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starburst.domain.cloud import Offer
from starburst.domain.job import Task


@dataclass(frozen=True, slots=True)
class Launch:
    """One machine to rent and the tasks it is for."""

    offer: Offer
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Machines to rent, and tasks that fit none with the resource that fails."""

    launches: tuple[Launch, ...]
    unplaced: tuple[tuple[Task, str], ...] = ()


class Packer(Protocol):
    """Tasks and offers in, plan out."""

    def plan(self, tasks: Sequence[Task], offers: Sequence[Offer]) -> Plan:
        """A plan for `tasks`; every task is in exactly one launch or unplaced."""
