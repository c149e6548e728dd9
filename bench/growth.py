"""What a measurement grows by when there is ten times as much, and which ratios are beyond their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def report(
    size: int, tenth: Mapping[str, float], whole: Mapping[str, float], limit: Callable[[str, float], float]
) -> str | None:
    """Print both measurements, by name, and their ratios; what is above `limit(name, value)`, a line each."""
    print(f"\n{'':<44}{size // 10:>12,}{size:>12,}{'× 1/10':>9}")
    slow = []
    for name, value in whole.items():
        ratio = value / max(tenth[name], 1e-9)
        print(f"{name:<44}{tenth[name]:>12,.3f}{value:>12,.3f}{ratio:>9.1f}")
        if ratio > limit(name, value):
            slow.append(f"{name}: {ratio:.1f} times that of a tenth")
    return "\n".join(slow) or None


def beyond(ratios: Mapping[str, float], most: Mapping[str, float]) -> str | None:
    """The ratios of one run that are above what they may be, by name, a line each."""
    lines = [
        f"{name}: {value:.3g}, at most {most[name]:g}"
        for name, value in ratios.items()
        if name in most and value > most[name]
    ]
    return "\n".join(lines) or None
