"""What every discipline can be told and asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from starburst.policy.disciplines.configurations import Configuration

#: A job that starts, and the server it starts on.
ServerStart = tuple[int, int]


class Discipline(Protocol):
    """The queue and the servers of one cluster, slot by slot. Jobs with lower numbers came first.

    In every slot first the jobs leave that are done, then the new ones arrive, then `start` says which of
    those waiting start where. A slot in which none left or arrived needs no call: nothing would start.
    """

    def __len__(self) -> int:
        """How many jobs wait."""

    def arrive(self, job: int, size: int) -> None:
        """A job joins the queue; its number is its own, its size is in units of the capacity."""

    def leave(self, job: int, server: int) -> None:
        """A job that runs on this server is done."""

    def start(self) -> list[ServerStart]:
        """Jobs that start now. They hold their room until they leave."""


class LiveDiscipline(Discipline, Protocol):
    """One that can also be told what happens on a cluster that it does not have to itself."""

    def withdraw(self, job: int) -> None:
        """A job that waits does so no longer."""

    def hold(self, job: int, size: int, server: int) -> None:
        """A job runs there that was not started from here; `room` is told next."""

    def room(self, server: int, room: int) -> None:
        """What is free on a server, whoever took or freed the rest; from 0 to the capacity."""

    def kept(self) -> Mapping[int, Configuration]:
        """Servers that keep a configuration until they are empty: all there is to remember of the past."""

    def keep(self, server: int, configuration: Configuration) -> None:
        """A server has this configuration from before; told first of all, before `hold`."""


#: make(servers, capacity)
Make = Callable[[int, int], Discipline]
MakeLive = Callable[[int, int], LiveDiscipline]
