"""Numba's decorator with types, and a cache of compiled code that cannot be stale or in the way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile as part of what calls it: as a call, each would count references to dozens of arrays."""
    return cast(F, numba.njit(forceinline=True)(function))


def kept(function: F) -> F:
    """Compile at the first call and keep the code on disk: beside the source, or in the user's cache.

    Where neither may be written to it is compiled anew in every process.
    """
    try:
        return cast(F, numba.njit(cache=True)(function))
    except RuntimeError:  # Numba found no place for it
        return cast(F, numba.njit(function))


def digest(files: Iterable[str | None]) -> str:
    """Of the text of these files. Numba itself notices only a change of the one file with the entry."""
    text = b"".join(Path(file).read_bytes() for file in files if file is not None)
    return hashlib.sha256(text).hexdigest()
