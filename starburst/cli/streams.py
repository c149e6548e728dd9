"""Standard output that is closed, full, or cannot encode a character: no traceback, and what can be said."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: Exit code of a command that its user leaves by Ctrl-C.
INTERRUPTED = 130
#: What a write to standard output fails with that nothing takes.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


@contextmanager
def safe_output() -> Iterator[None]:
    """Exit with 1 if standard output takes no more: a closed pipe silently, a full disk with one line."""
    _open_missing()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard()
        sys.exit(1)
    except OSError as error:
        if error.errno not in _FULL or error.filename:
            raise
        _discard()
        print(f"error: standard output: {error.strerror}; write it elsewhere or free room", file=sys.stderr)
        sys.exit(1)


def _open_missing() -> None:
    """Python has no stream where the caller closed the descriptor."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _discard() -> None:
    """Drop what is buffered: Python flushes standard output once more at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
