"""Carries a task's output to its log and bounds the log.

The log keeps the beginning of the output, since its followers count bytes, and the last 64 KiB of what
exceeds the bound, since errors come last; a line in between states how much is missing. A full disk leaves a
gap and a line that states it; the task runs on.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from starburst.runs.supervisor.line_times import EVERY_S, note_time

#: Bytes of a log by default.
MAX_LOG = 1 << 30
#: Bytes kept of the end of what exceeds the bound; and of a read.
TAIL = 1 << 16
BLOCK = 1 << 16
#: Seconds for the last output after the task ended: another process may hold the pipe open.
LAST_S = 10.0


class LogPump:
    """A thread that copies from a pipe to the descriptor `log`: `limit` bytes and the tail of the rest.

    The file `times` gets the times of the lines.
    """

    def __init__(self, log: int, limit: int, times: str) -> None:
        self._times, self._noted_at = times, float("-inf")
        self._log, self._limit = log, limit
        self._room = limit
        self._tail = b""
        self._left_out = self._lost = 0
        self._source, self._sink = os.pipe()
        self._thread = threading.Thread(target=self._pump, daemon=True)

    def redirect(self) -> None:
        """In the task's process: make the pipe its stdout and stderr."""
        os.dup2(self._sink, 1)
        os.dup2(self._sink, 2)

    def begin(self) -> None:
        """In the supervisor, once the task runs: start copying."""
        os.close(self._sink)
        self._thread.start()

    def end(self) -> None:
        """Wait until all output is in the log."""
        self._thread.join(LAST_S)

    def _pump(self) -> None:
        while True:
            block = os.read(self._source, BLOCK)
            if not block:
                break
            self.take(block)
        self.finish()

    def take(self, block: bytes) -> None:
        """Write what fits, and keep the end of the rest."""
        fits, rest = block[: self._room], block[self._room :]
        if fits:
            self._write(fits)
            self._room -= len(fits)
        if not rest:
            return
        if not self._left_out:
            self._write(
                f"\n[starburst: home.max_log is reached, {self._limit} bytes; of what follows the last "
                f"{TAIL // 1024} KiB are kept, once the task has ended]\n".encode()
            )
        self._tail += rest
        self._left_out += len(rest)
        self._tail = self._tail[-TAIL:]

    def finish(self) -> None:
        """Write the kept end."""
        if self._left_out > len(self._tail):
            self._write(f"[starburst: {self._left_out - len(self._tail)} bytes were left out]\n".encode())
        if self._tail:
            self._write(self._tail)

    def _write(self, text: bytes) -> None:
        self._note_time()
        if self._lost:
            gap = f"\n[starburst: {self._lost} bytes were lost here, for the disk was full]\n".encode()
            if self._write_all(gap) < len(gap):
                self._lost += len(text)
                return
            self._lost = 0
        self._lost += len(text) - self._write_all(text)

    def _note_time(self) -> None:
        now = time.time()
        if not self._noted_at <= now < self._noted_at + EVERY_S:
            self._noted_at = now
            note_time(self._times, os.fstat(self._log).st_size, now)

    def _write_all(self, text: bytes) -> int:
        """How many bytes the disk took."""
        written = 0
        with suppress(OSError):
            while written < len(text):
                written += os.write(self._log, text[written:])
        return written
