"""Says how fast a job goes and how far it is, in one line of the job:

    from starburst.iterator import watch

    for batch in watch(loader, total=epochs * len(loader)):
        ...

Where Starburst runs the job, STARBURST_REPORT names a file beside it; a few times a minute that is replaced
by one line of JSON. Elsewhere nothing is written, and the loop costs nothing at all. It needs the standard
library only: this file may be copied to wherever Starburst is not installed.

`python -m starburst.iterator --profile 60 train.py …` runs a program until its watched loop, once warm, has
run for a minute, and writes its throughput to throughput.json: what it does with a machine to itself.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: The file to report to; how long to measure, and where to write what was measured.
REPORT, PROFILE, PROFILE_OUT = "STARBURST_REPORT", "STARBURST_PROFILE", "STARBURST_PROFILE_OUT"
WINDOW_S = 10.0
#: The share of a profile's time that is not counted: caches fill, kernels are compiled.
WARM_UP = 0.1


def watch(iterable: Iterable[T], total: float | None = None, *, done: float = 0) -> Watched[T]:
    """The same iterable, watched: every attribute is its own, and it may be gone through again and again.

    `total` is how many iterations the whole job has, all epochs together; without it the rate alone is told.
    `done` is how many of them a checkpoint had already.
    """
    kind = _Sized if hasattr(iterable, "__len__") else Watched
    return kind(iterable, total, done)


class Watched(Generic[T]):
    """An iterable that counts what is taken from it. It raises nothing that the iterable does not raise."""

    def __init__(self, iterable: Iterable[T], total: float | None = None, done: float = 0) -> None:
        self._iterable = iterable
        self._total = total
        self._done = done
        self._path = os.environ.get(REPORT)
        profile_s = _number(os.environ.get(PROFILE))
        self._profile = _Profile(profile_s) if profile_s else None
        self._since = math.inf
        self._done_then = done

    def __iter__(self) -> Iterator[T]:
        if self._profile is not None:
            return self._profile.through(self._iterable)
        return iter(self._iterable) if self._path is None else self._counted()

    def __getattr__(self, name: str) -> Any:
        if name == "_iterable":  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self._iterable, name)

    def _counted(self) -> Iterator[T]:
        clock = time.monotonic
        self._since = min(self._since, clock())
        due = self._since + WINDOW_S
        for item in self._iterable:
            yield item
            self._done += 1  # whoever asks for the next one has done with this one
            if clock() >= due:
                due = self._tell(clock())

    def _tell(self, now: float) -> float:
        """Report the window that ends now; when the next one does."""
        per_s = (self._done - self._done_then) / max(now - self._since, 1e-9)
        self._since, self._done_then = now, self._done
        try:
            if self._path is not None:
                told = {"done": self._done, "total": self._total, "per_s": per_s, "at": time.time()}
                _write(self._path, told)
        except Exception:  # nobody listens: no reason to disturb the job, now or later
            self._path = None
        return now + WINDOW_S


class _Sized(Watched[T]):
    """One whose length is known."""

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]


class _Profile:
    """Measures one loop, over as many epochs as it takes."""

    def __init__(self, profile_s: float) -> None:
        self._profile_s = profile_s
        self._began = self._since = time.monotonic()
        self._counted = 0
        self._warm = False

    def through(self, iterable: Iterable[T]) -> Iterator[T]:
        """Goes on for so long, writes how fast that was, and ends the program."""
        for item in iterable:
            yield item
            now = time.monotonic()
            self._counted += 1
            if not self._warm and now - self._began >= self._profile_s * WARM_UP:
                self._warm, self._since, self._counted = True, now, 0
            elif self._warm and now - self._since >= self._profile_s:
                self._write(now)
                raise SystemExit(0)
        self._write(time.monotonic())  # perhaps there is no next epoch

    def _write(self, now: float) -> None:
        seconds = now - self._since
        measured = {
            "per_s": self._counted / max(seconds, 1e-9),
            "iterations": self._counted,
            "seconds": seconds,
        }
        _write(os.environ.get(PROFILE_OUT) or "throughput.json", measured)


def _write(path: str, data: Mapping[str, object]) -> None:
    """Replace a file as a whole; processes of one job may do so at the same time."""
    import json  # noqa: PLC0415 - a job that nobody listens to does not need it

    staging = f"{path}.{os.getpid()}"
    with open(staging, "w", encoding="utf-8") as file:
        json.dump(data, file)
    os.replace(staging, path)


def _number(text: str | None) -> float:
    """Seconds; 0 if that is no number of them."""
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


def _main() -> None:
    import argparse  # noqa: PLC0415 - for the command alone
    import runpy  # noqa: PLC0415
    import sys  # noqa: PLC0415

    parser = argparse.ArgumentParser("python -m starburst.iterator", description="Measure a program.")
    parser.add_argument("--profile", type=float, metavar="SECONDS", default=60.0, help="how long [60]")
    parser.add_argument("--out", metavar="FILE", default="throughput.json", help="[throughput.json]")
    parser.add_argument("program", help="a Python file whose loop is in watch()")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    told = parser.parse_args()
    if told.profile <= 0:
        parser.error(f"--profile: {told.profile:g} must be more than 0 seconds")
    if not os.path.isfile(told.program):
        parser.error(f"{told.program}: there is no such file")
    os.environ[PROFILE], os.environ[PROFILE_OUT] = str(told.profile), os.path.abspath(told.out)
    sys.argv = [told.program, *told.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(told.program))
    runpy.run_path(told.program, run_name="__main__")


if __name__ == "__main__":
    _main()
