"""Spans as people read them."""

from __future__ import annotations


def age(seconds: float) -> str:
    """A span as kubectl says it: 45s, 12m, 3h20m, 5d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    if whole < 172_800:
        minutes = whole % 3600 // 60
        return f"{whole // 3600}h{f'{minutes}m' if minutes else ''}"
    return f"{whole // 86_400}d"
