"""What a scheduler that runs for months asks of its system: open files, and memory that goes back."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress

#: `M_MMAP_THRESHOLD` of malloc.h, and the bytes from which on a block is memory of its own.
_MMAP_THRESHOLD, LARGE_BYTES = -3, 1 << 20


def raise_file_limit() -> None:
    """Raise the soft limit of open files: connections, runs and machines need some each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def return_large_blocks() -> None:
    """Have large blocks go back to the system when they are freed; does nothing where malloc is not glibc's.

    glibc raises the size from which it does so with each larger block that is freed, up to 32 MiB. After
    one long listing all large blocks lie in the heap then: each leaves a hole that small ones break up, and
    the heap grows for the next. One such block is Python's dictionary of interned strings, which holds every
    name of a path. It is made anew every 40,000 jobs or so, for 3.7 MiB each time.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
