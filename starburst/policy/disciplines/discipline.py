"""The interface of all disciplines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from starburst.policy.disciplines.configurations import Configuration

#: A job that starts, and the server it starts on.
ServerStart = tuple[int, int]


class Discipline(Protocol):
    """The queue and the servers of one cluster, time slot by time slot. Lower job numbers arrived earlier.

    In each slot the ended jobs leave, then new jobs arrive, then `start` chooses which waiting jobs start on
    which servers. A slot without departures and arrivals needs no call, as no job would start.
    """

    def __len__(self) -> int:
        """The number of waiting jobs."""

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue; its number is unique, its size is in units of the capacity."""

    def leave(self, job: int, server: int) -> None:
        """A job that runs on this server has ended."""

    def start(self) -> list[ServerStart]:
        """The jobs that start now, with their servers. They occupy their room until `leave`."""


class LiveDiscipline(Discipline, Protocol):
    """A discipline for a cluster that it shares: it also receives changes caused by other work."""

    def withdraw(self, job: int) -> None:
        """A waiting job leaves the queue."""

    def hold(self, job: int, size: int, server: int) -> None:
        """A job that this discipline did not start runs on the server; a call of `room` follows."""

    def room(self, server: int, room: int) -> None:
        """The server's free room (0 to the capacity), including changes by work outside the discipline."""

    def kept(self) -> Mapping[int, Configuration]:
        """Servers that keep a configuration until they are empty: the only state that must be stored."""

    def keep(self, server: int, configuration: Configuration) -> None:
        """Restore a server's stored configuration; called before any `hold`."""


#: make(servers, capacity)
Make = Callable[[int, int], Discipline]
MakeLive = Callable[[int, int], LiveDiscipline]
