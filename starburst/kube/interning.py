"""Equal values kept once: what thousands of pods have in common costs memory once."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar, cast

T = TypeVar("T", bound=Hashable)

#: Different values remembered; what is older is only kept by those who hold it.
MOST = 4096


def interned(value: T) -> T:
    """The first of all values equal to this one."""
    return cast(T, _one(value))


def interned_dict(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """As `interned`, a mapping of these items. Nobody may change it."""
    return _shared(items)


@lru_cache(maxsize=MOST)
def _one(value: Hashable) -> Hashable:
    return value


@lru_cache(maxsize=MOST)
def _shared(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return dict(items)
