"""What a measurement grows by when there is ten times as much, and which ratios are beyond their limits."""

from __future__ import annotations

import argparse
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


def of_a_tenth(
    about: str | None, measure: Callable[[int], Mapping[str, float]], limit: Callable[[str, float], float]
) -> str | None:
    """Measure --jobs and a tenth of it, and `report` both: what a benchmark of one length does."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--small", action="store_true", help="10,000 jobs: only to see that it runs")
    args = parser.parse_args()
    jobs = 10_000 if args.small else args.jobs
    return report(jobs, measure(jobs // 10), measure(jobs), limit)


def beyond(ratios: Mapping[str, float], most: Mapping[str, float]) -> str | None:
    """The ratios of one run that are above what they may be, by name, a line each."""
    lines = [
        f"{name}: {value:.3g}, at most {most[name]:g}"
        for name, value in ratios.items()
        if name in most and value > most[name]
    ]
    return "\n".join(lines) or None
