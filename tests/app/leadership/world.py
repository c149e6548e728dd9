"""Processes that compete for the lead in virtual time: their clocks differ, they are stopped and cut off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starburst.app.daemon.home_lock import HomeLock
from starburst.app.leadership.election import Election
from starburst.store import leader
from starburst.store.errors import FencedError, UnusableError
from starburst.store.leader import LeaderClaim, LeaderRecord


@dataclass
class World:
    """One row, a time that only this moves on, and what takes how long."""

    draw: random.Random
    now: float = 0.0
    row: LeaderRecord | None = None
    #: Longest time that a call of the store takes each way, seconds.
    slow_s: float = 0.0
    cut: set[str] = field(default_factory=set)
    processes: list[Process] = field(default_factory=list)
    #: Times at which the lead was taken, and by whom.
    taken: list[tuple[float, str]] = field(default_factory=list)

    def pass_time(self) -> None:
        """Let no time pass, or much, in which the others go on."""
        self.go_on(self.now + self.draw.choice([0.0, 0.0, 0.01, self.slow_s]))

    def go_on(self, until: float) -> None:
        """Each process that waits for no answer does its rounds when they are due."""
        while idle := [one for one in self.processes if not one.busy and one.due < until]:
            process = min(idle, key=lambda one: one.due)
            self.now = max(self.now, process.due)
            self.check()
            process.round()
        self.now = max(self.now, until)
        self.check()

    def check(self) -> None:
        """At each moment at most one process is certain that it leads."""
        certain = [process.name for process in self.processes if process.election.certain()]
        assert len(certain) <= 1, f"at {self.now:.3f} s {certain} are certain that they lead"

    # The functions of `starburst.store.leader`; the store is the process that asks.

    def read(self, who: Process) -> LeaderRecord | None:
        self._reach(who)
        found = self.row
        self.pass_time()
        return found

    def take(self, who: Process, seen: LeaderRecord | None, claim: LeaderClaim) -> int | None:
        self._reach(who)
        before = self.row
        if (before and (before.epoch, before.beat)) != (seen and (seen.epoch, seen.beat)):
            return None
        epoch, beat = (before.epoch + 1, before.beat + 1) if before else (1, 1)
        self.row = LeaderRecord(
            claim.holder, claim.address, claim.home, claim.renews, epoch, beat, drain=0, age_s=0
        )
        self.taken.append((self.now, claim.holder))
        self.pass_time()
        return epoch

    def renew(self, who: Process, epoch: int, home: str) -> LeaderRecord:
        self._reach(who)
        if self.row is None or self.row.epoch != epoch:
            raise FencedError("another one leads")
        self.row = record = replace(self.row, beat=self.row.beat + 1, home=home)
        self.pass_time()
        if who.name in self.cut:
            raise UnusableError("the answer was lost")
        return record

    def _reach(self, who: Process) -> None:
        self.pass_time()
        if who.name in self.cut:
            raise UnusableError("cut off")


class Process:
    """One that competes, with a clock of its own rate."""

    def __init__(self, world: World, name: str, rate: float = 1.0, home: Path | None = None) -> None:
        self.world, self.name, self.due = world, name, world.now
        offset = world.draw.uniform(0, 1e6)
        self.rate = rate
        #: It waits for an answer of the store.
        self.busy = False
        asks: Any = self
        lock = HomeLock(home) if home is not None else NoHome()
        self.election = Election(
            lambda: asks, LeaderClaim(name), lock, clock=lambda: offset + rate * world.now
        )
        world.processes.append(self)

    def round(self) -> None:
        self.busy = True
        self.election.round()
        self.busy = False
        self.world.check()
        self.due = self.world.now + self.election.pause_s() / self.rate

    def die(self) -> None:
        self.world.processes.remove(self)


class NoHome(HomeLock):
    """Of a process whose home is its own: it proves nothing about another one."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))

    def take(self) -> bool:
        return True


@contextmanager
def world(seed: int, monkeypatch: Any, **more: Any) -> Iterator[World]:
    """A world in place of the store."""
    made = World(random.Random(seed), **more)
    monkeypatch.setattr(leader, "leader_record", made.read)
    monkeypatch.setattr(leader, "take", made.take)
    monkeypatch.setattr(leader, "renew", made.renew)
    yield made
