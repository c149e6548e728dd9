"""What watching a loop costs: the same work with and without `starburst.iterator.watch`, by turns in one run.

An iteration computes for about a millisecond, as 1,000 iterations/s have it. Which loop goes on next is drawn
anew each time, so that all see the same weather; one without a watch runs twice, to show what is chance.
Reports over HTTP go to a process that takes them; what their thread costs is its CPU time, as it may be the
loop's. It fails where watching takes more of a loop of 1,000 iterations/s than `MOST`.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from bench.growth import beyond
from starburst.iterator import REPORT, TOKEN, WINDOW_S, _sender, watch

ITERATION_S = 0.001
#: What watching may take of a loop.
MOST = 0.01
EMPTY = 200_000
TOLD = {"done": 123_456, "total": 1_000_000, "per_s": 987.654321}
#: Takes what comes, and prints its port.
LISTENER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
#: What is imported for it once, before the first loop.
FIRST = """
import time
from starburst.iterator import _sender
began = time.thread_time()
_sender("http://127.0.0.1/")
print(time.thread_time() - began)
"""


def main() -> None:
    """Measure --iterations of each loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=5000)
    parser.add_argument("--small", action="store_true", help="few iterations: only to see that it runs")
    args = parser.parse_args()
    count = 100 if args.small else args.iterations
    os.environ.pop(REPORT, None)
    os.environ[TOKEN] = "starburst_report_" + "x" * 43
    with tempfile.TemporaryDirectory() as home, listener() as url:
        loops = {
            "not watched": iter(range(count)),
            "not watched, once more": iter(range(count)),
            "watched, nobody listens": iter(watch(range(count))),
        }
        os.environ[REPORT] = os.path.join(home, "report.json")
        loops["watched, reported"] = iter(watch(range(count)))
        os.environ[REPORT] = url
        loops["watched, reported by HTTP"] = iter(watch(range(count)))
        medians_s = by_turns(loops)
        added_s = statistics.median(empty(watch(range(EMPTY))) - empty(range(EMPTY)) for _ in range(11))
        put_s = statistics.median(reported() for _ in range(101))
        send = _sender(url)
        send_s = statistics.median(cpu(lambda: send(TOLD)) for _ in range(101))
        os.environ[REPORT] = os.path.join(home, "report.json")
        file_s = statistics.median(reported() for _ in range(101))
    first = [subprocess.run([sys.executable, "-c", FIRST], stdout=-1, check=True).stdout for _ in range(11)]
    first_s = statistics.median(map(float, first))
    base_s = medians_s["not watched"]
    for name, median_s in medians_s.items():
        print(f"{name:<52}{median_s * 1e3:>10.4f} ms{median_s / base_s:>9.4f}")
    print(f"{'an iteration that does nothing, watched, costs':<52}{added_s * 1e9:>10.0f} ns")
    print(f"{'a report into a file costs':<52}{file_s * 1e3:>10.3f} ms")
    print(f"{'a report over HTTP costs the loop':<52}{put_s * 1e6:>10.1f} µs")
    print(f"{'and its thread':<52}{send_s * 1e3:>10.3f} ms of CPU")
    print(f"{'and once, before the first loop':<52}{first_s * 1e3:>10.3f} ms of CPU")
    shares = {
        f"all, of 1,000 iterations/s, reported to {name}": added_s / ITERATION_S + report_s / WINDOW_S
        for name, report_s in (("a file", file_s), ("HTTP", put_s + send_s))
    }
    for name, share in shares.items():
        print(f"{name:<52}{share * 100:>10.4f} %")
    sys.exit(beyond(shares, dict.fromkeys(shares, MOST)))


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


@contextmanager
def listener() -> Iterator[str]:
    """The address of a process that takes reports."""
    with subprocess.Popen([sys.executable, "-c", LISTENER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        finally:
            process.kill()


def cpu(act: Callable[[], None]) -> float:
    """CPU seconds of this thread."""
    began = time.thread_time()
    act()
    return time.thread_time() - began


def reported() -> float:
    """Seconds that a report takes in the loop."""
    watched = watch(range(1), total=1)
    began = time.perf_counter()
    watched._tell(0.0)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
