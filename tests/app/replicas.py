"""A small demo on two schedulers, whose leader is killed, stopped or drained again and again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess

import yaml
from sqlalchemy.engine import make_url

from starburst.store.databases.lock_holder import holder
from starburst.store.leader import LeaderRecord, ask_drain, leader_record
from starburst.store.store import Store
from tests.app.cut_line import CutLine
from tests.app.lives import CONFIG, PATIENCE_S, Lives, past

#: The promise, wall seconds.
TAKEOVER_S = 15.0
#: Ends of a leadership.
KILL, STOP, DRAIN, CUT = "kill -9", "SIGSTOP", "drain", "cut"


@dataclass
class Replicas(Lives):
    """One run in a home that two schedulers share."""

    #: How each leader ends, in order; `moments` are the lives of the leaders.
    ends: Sequence[str] = ()
    #: How long each change of the leader took, wall seconds.
    took_s: list[tuple[str, float]] = field(default_factory=list)
    #: A database of PostgreSQL, and the lines over which replicas reach it; None is the home's file.
    url: str | None = None
    lines: Sequence[CutLine] = ()
    _line_of: dict[int, CutLine] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Live through it; returns what is wrong at the end."""
        self._began = time.monotonic()
        try:
            with self.open() as store:
                self._begin(store)
                for moment, how in zip(self.moments, self.ends, strict=True):
                    self.until(partial(past, time.monotonic() + moment), store)
                    self._end(store, how)
                in_time = self.until(lambda: self.is_over(store), store)
                wrong = [] if in_time else [f"not over within {PATIENCE_S:g} s"]
                wrong += self._slow() + self._ended()
                self._stop_all()
                return wrong + self.wrong(store)
        finally:
            self.end()

    def open(self) -> Store:
        """The store, not over a line that may be cut."""
        return super().open() if self.url is None else Store.open(self.url)

    def replica(self) -> None:
        """Start one more, on the line that no other uses."""
        if self.url is None:
            self.start("--standby")
            return
        in_use = [self._line_of[one.pid or 0] for one in self._alive()]
        line = next(one for one in self.lines if one not in in_use)
        self.config = self.root / f"on-{line.port}.yaml"
        url = make_url(self.url).set(host="127.0.0.1", port=line.port)
        self.config.write_text(yaml.safe_dump({**CONFIG, "store": {"url": url.render_as_string(False)}}))
        self._line_of[self.start("--standby").pid or 0] = line

    def _begin(self, store: Store) -> None:
        for _ in range(2):
            self.replica()
        self.until(lambda: self._leader(store) is not None, store)

    def _end(self, store: Store, how: str) -> None:
        """End the leader in one way, wait for the next one, and start another to stand by."""
        record = self._leader(store)
        assert record is not None
        process = next(one for one in self._alive() if one.pid == _pid(record))
        at = time.monotonic()
        with self._gone(store, record, process, how):
            self.until(lambda: self._next(store, record.epoch), store)
            self.took_s.append((how, time.monotonic() - at))
        self.replica()

    @contextmanager
    def _gone(self, store: Store, record: LeaderRecord, process: BaseProcess, how: str) -> Iterator[None]:
        """The leader has ended, or does nothing, during the block; it is no more after it."""
        expected = {KILL: -signal.SIGKILL, STOP: 1, DRAIN: 0, CUT: 1}[how]
        if how == KILL:
            process.kill()
        elif how == DRAIN:
            ask_drain(store, record.epoch)
        elif how == CUT:
            self._line_of[process.pid or 0].cut()
        else:
            self._stop(process)
        yield
        if how == CUT:
            self._line_of[process.pid or 0].mend()
        if how == STOP:
            os.kill(process.pid or 0, signal.SIGCONT)
        process.join(PATIENCE_S)
        if process.exitcode != expected:
            self.took_s.append((f"{how} ended with {process.exitcode}, not {expected}", 2 * TAKEOVER_S))

    def _stop(self, process: BaseProcess) -> None:
        """Stop it outside of a commit: SQLite's lock is its own as long as it lives."""
        assert process.pid is not None
        while True:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.02)
            if f"pid {process.pid} " not in (holder(self.home.database) or ""):
                return
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.01)

    def _leader(self, store: Store) -> LeaderRecord | None:
        record = leader_record(store)
        return record if record is not None and record.holder else None

    def _next(self, store: Store, epoch: int) -> bool:
        record = self._leader(store)
        return record is not None and record.epoch > epoch

    def _alive(self) -> list[BaseProcess]:
        return [process for process in self.processes if process.exitcode is None]

    def _slow(self) -> list[str]:
        return [f"{how}: {took_s:.1f} s" for how, took_s in self.took_s if took_s > TAKEOVER_S]

    def _ended(self) -> list[str]:
        left = len(self._alive())
        return [] if left == 2 else [f"{left} of two schedulers go on"]

    def _stop_all(self) -> None:
        for process in self._alive():
            process.terminate()
        for process in self.processes:
            with suppress(ValueError):
                process.join(PATIENCE_S)


def _pid(record: LeaderRecord) -> int:
    """Of the name of a replica: host/pid-random."""
    return int(record.holder.rpartition("/")[2].partition("-")[0])
