"""Interning: of equal values that thousands of pods have in common only one is kept in memory."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar, cast

T = TypeVar("T", bound=Hashable)

#: Different values remembered.
MOST = 4096


def interned(value: T) -> T:
    """The first of all values that are equal to this one."""
    return cast(T, _one(value))


def interned_dict(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The first of all equal mappings of these items. It must not be changed."""
    return _shared(items)


@lru_cache(maxsize=MOST)
def _one(value: Hashable) -> Hashable:
    return value


@lru_cache(maxsize=MOST)
def _shared(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return dict(items)
