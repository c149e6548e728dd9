"""What watching a loop costs: the same work with and without `starburst.iterator.watch`, by turns in one run.

An iteration computes for about a millisecond, as 1,000 iterations/s have it. Which loop goes on next is drawn
anew each time, so that all see the same weather; one without a watch runs twice, to show what is chance.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator

from starburst.iterator import REPORT, WINDOW_S, watch

ITERATION_S = 0.001
EMPTY = 200_000


def main() -> None:
    """Measure --iterations of each loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=5000)
    parser.add_argument("--small", action="store_true", help="few iterations: only to see that it runs")
    args = parser.parse_args()
    count = 100 if args.small else args.iterations
    os.environ.pop(REPORT, None)
    with tempfile.TemporaryDirectory() as home:
        loops = {
            "not watched": iter(range(count)),
            "not watched, once more": iter(range(count)),
            "watched, nobody listens": iter(watch(range(count))),
        }
        os.environ[REPORT] = os.path.join(home, "report.json")
        loops["watched, reported"] = iter(watch(range(count)))
        medians_s = by_turns(loops)
        added_s = statistics.median(empty(watch(range(EMPTY))) - empty(range(EMPTY)) for _ in range(11))
        report_s = statistics.median(reported() for _ in range(101))
    base_s = medians_s["not watched"]
    for name, median_s in medians_s.items():
        print(f"{name:<52}{median_s * 1e3:>10.4f} ms{median_s / base_s:>9.4f}")
    print(f"{'an iteration that does nothing, watched, costs':<52}{added_s * 1e9:>10.0f} ns")
    print(f"{'a report costs':<52}{report_s * 1e3:>10.3f} ms")
    share = added_s / ITERATION_S + report_s / WINDOW_S
    print(f"{'both, of 1,000 iterations/s':<52}{share * 100:>10.4f} %")


def by_turns(loops: dict[str, Iterator[int]]) -> dict[str, float]:
    """Median seconds of an iteration of each loop."""
    amount, draw, took_s = calibrated(), random.Random(1), {name: list[float]() for name in loops}
    names = list(loops)
    while True:
        draw.shuffle(names)
        for name in names:
            began = time.perf_counter()
            if next(loops[name], None) is None:
                return {name: statistics.median(times) for name, times in took_s.items()}
            work(amount)
            took_s[name].append(time.perf_counter() - began)


def work(amount: int) -> int:
    """Computes for a while."""
    total = 0
    for number in range(amount):
        total += number
    return total


def calibrated() -> int:
    """How much work takes an iteration's time here."""
    amount, times = 10_000, []
    for _ in range(50):
        began = time.perf_counter()
        work(amount)
        times.append(time.perf_counter() - began)
    return max(1, round(amount * ITERATION_S / statistics.median(times)))


def empty(items: Iterable[int]) -> float:
    """Seconds an iteration."""
    began = time.perf_counter()
    for _ in items:
        pass
    return (time.perf_counter() - began) / EMPTY


def reported() -> float:
    """Seconds a report takes."""
    watched = watch(range(1), total=1)
    began = time.perf_counter()
    watched._tell(0.0)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
