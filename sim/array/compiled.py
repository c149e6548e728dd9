"""Numba's decorator with types, and a cache of compiled code that is never stale and needs no setup."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile inline into the caller: a real call would count references to dozens of arrays."""
    return cast(F, numba.njit(forceinline=True)(function))


def kept(function: F) -> F:
    """Compile at the first call and cache the code on disk, beside the source or in the user's cache.

    If neither is writable, the code is compiled anew in each process.
    """
    try:
        return cast(F, numba.njit(cache=True)(function))
    except RuntimeError:  # no writable cache directory
        return cast(F, numba.njit(function))


def ready(function: Callable[..., Any], *arguments: object) -> None:
    """Compile a `kept` function for such arguments, or load it; processes that start together do so once.

    Where the code cannot be kept, as on a full disk, it is compiled all the same.
    """
    where = function.stats.cache_path  # type: ignore[attr-defined]
    types = tuple(numba.typeof(argument) for argument in arguments)  # type: ignore[no-untyped-call]
    if where is None or types in function.signatures:  # type: ignore[attr-defined]
        return
    with suppress(OSError), (Path(where) / f"{function.__name__}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the system releases it when the file is closed
        function.compile(types)  # type: ignore[attr-defined]
    if types not in function.signatures:  # type: ignore[attr-defined]  # the lock is another user's, or found no room
        with suppress(OSError):
            function.compile(types)  # type: ignore[attr-defined]


def digest(files: Iterable[str | None]) -> str:
    """SHA-256 of these files. Numba itself detects only changes of the file with the entry point."""
    text = b"".join(Path(file).read_bytes() for file in files if file is not None)
    return hashlib.sha256(text).hexdigest()
