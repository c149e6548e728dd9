"""When the parts of a log were written: records of a byte offset and a time in a file beside the log.

There is at most one record a second, so a line's time may be up to a second early. A log without the file,
or from before its first record, has no times. The file may have been written by a job: nothing in it is
trusted beyond being numbers.
"""

from __future__ import annotations

import math
import os
import struct
from bisect import bisect_right
from contextlib import suppress

NAME = "log.times"
#: Seconds between two records.
EVERY_S = 1.0
#: Bytes of records that are read: a month of them.
MOST_BYTES = 1 << 26
_RECORD = struct.Struct("<Qd")


def note_time(path: str, offset: int, at: float) -> None:
    """Record that what follows byte `offset` was written at `at` (epoch seconds), if a record is due.

    Without room on the disk, or if the file is not one, there is no record.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError, struct.error):
        file = os.open(path, flags, 0o600)
        try:
            whole = os.fstat(file).st_size // _RECORD.size
            if whole:
                _, last = _RECORD.unpack(os.pread(file, _RECORD.size, (whole - 1) * _RECORD.size))
                if last <= at < last + EVERY_S:
                    return
            os.write(file, _RECORD.pack(offset, at))
        finally:
            os.close(file)


class LineTimes:
    """The records of one log, by offset."""

    def __init__(self, records: list[tuple[int, float]]) -> None:
        self._offsets = [offset for offset, _ in records]
        self._times = [at for _, at in records]

    def at(self, offset: int) -> float | None:
        """When the line that begins at a byte was written, epoch seconds; None if unknown."""
        found = bisect_right(self._offsets, offset)
        return self._times[found - 1] if found else None


def read_times(path: str) -> LineTimes:
    """The records in a file; none if it is missing."""
    data = b""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(file, "rb") as reading:
            data = reading.read(MOST_BYTES)
    whole = data[: len(data) // _RECORD.size * _RECORD.size]
    return LineTimes(sorted(record for record in _RECORD.iter_unpack(whole) if math.isfinite(record[1])))
