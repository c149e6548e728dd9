"""What a scheduler that runs for months asks of its system: open files, and memory that goes back."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress

#: Options of `mallopt` in glibc's malloc.h: `M_MMAP_THRESHOLD`, `M_ARENA_MAX`.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
#: Bytes from which on a block is memory of its own; and heaps, of which glibc makes up to 8 for each CPU.
LARGE_BYTES, HEAPS = 1 << 20, 2


def raise_file_limit() -> None:
    """Raise the soft limit of open files: connections, runs and machines need some each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def keep_memory_flat() -> None:
    """Have freed memory go back to the system or be used again; does nothing where malloc is not glibc's.

    Large blocks: glibc raises the size from which it gives them back with each larger one that is freed, up
    to 32 MiB. After one long listing all lie in the heap then: each leaves a hole that small ones break up,
    and the heap grows for the next. One such block is Python's dictionary of interned strings, which holds
    every name of a path. It is made anew every 40,000 jobs or so, for 3.7 MiB each time.

    Heaps: each new thread takes another one, and each keeps what its fullest moment needed.
    """
    with suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
        libc.mallopt(_ARENA_MAX, HEAPS)
