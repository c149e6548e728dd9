"""What every discipline can be told and asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

#: A job that starts, and the server it starts on.
Start = tuple[int, int]


class Discipline(Protocol):
    """The queue and the servers of one cluster, slot by slot.

    In every slot first the jobs leave that are done, then the new ones arrive, then `start` says which of
    those waiting start where. A slot in which none left or arrived needs no call: nothing would start.
    """

    def __len__(self) -> int:
        """How many jobs wait."""

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue; its number is its own, its size is in units of the capacity."""

    def leave(self, job: int, server: int) -> None:
        """A job that runs on this server is done."""

    def start(self) -> list[Start]:
        """Jobs that start now. They hold their room until they leave."""


#: make(servers, capacity)
Make = Callable[[int, int], Discipline]
