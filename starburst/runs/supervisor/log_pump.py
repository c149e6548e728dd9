"""What a task writes on its way to its log, which has bounds: part of the shim, beside which it lies.

The log keeps the beginning, because who follows it counts its bytes; and of what does not fit the last
64 KiB, because errors stand at the end. A line of ours says what was left out. A full disk leaves a gap and a
line that says so; the task runs on.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

#: Bytes of a log that are kept, unless somebody says otherwise.
MAX_LOG = 1 << 30
#: Of what does not fit this much of the end is kept.
TAIL = 1 << 16
BLOCK = 1 << 16
#: Seconds for the last output, once nothing of the task is alive: somebody else may hold the other end.
LAST_S = 10.0


class LogPump:
    """Brings output from a pipe to the file that is open as `log`, of at most `limit` bytes and the rest."""

    def __init__(self, log: int, limit: int) -> None:
        self._log, self._limit = log, limit
        self._room = limit
        self._tail = b""
        self._left_out = self._lost = 0
        self._source, self._sink = os.pipe()
        self._thread = threading.Thread(target=self._pump, daemon=True)

    def redirect(self) -> None:
        """In the task's process: make the pipe its output."""
        os.dup2(self._sink, 1)
        os.dup2(self._sink, 2)

    def begin(self) -> None:
        """In the shim, once the task runs: take what comes."""
        os.close(self._sink)
        self._thread.start()

    def end(self) -> None:
        """Return when all is in the log."""
        self._thread.join(LAST_S)

    def _pump(self) -> None:
        while True:
            block = os.read(self._source, BLOCK)
            if not block:
                break
            self.take(block)
        self.finish()

    def take(self, block: bytes) -> None:
        """Keep what fits, and the end of the rest."""
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
        """Write the end."""
        if self._left_out > len(self._tail):
            self._write(f"[starburst: {self._left_out - len(self._tail)} bytes were left out]\n".encode())
        if self._tail:
            self._write(self._tail)

    def _write(self, text: bytes) -> None:
        if self._lost:
            gap = f"\n[starburst: {self._lost} bytes were lost here, for the disk was full]\n".encode()
            if self._write_all(gap) < len(gap):
                self._lost += len(text)
                return
            self._lost = 0
        self._lost += len(text) - self._write_all(text)

    def _write_all(self, text: bytes) -> int:
        """How many bytes of it the disk took."""
        written = 0
        with suppress(OSError):
            while written < len(text):
                written += os.write(self._log, text[written:])
        return written
