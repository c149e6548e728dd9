"""Live through days in small: `python -m tests.sky_lab.day --jobs 100 --minutes 30 --seed 1 --times 3`."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.sky_lab.day.day import Day
from tests.sky_lab.day.faults import faults
from tests.sky_lab.day.jobs import kinds
from tests.sky_lab.day.plan import plan_day
from tests.sky_lab.lab import environment

#: Longest beat of jobs, seconds.
LONGEST_S = 90.0


def main() -> int:
    """Live through days one after the other; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=30.0, help="over which jobs and faults are spread")
    parser.add_argument("--faults", type=int, default=36, help="things that go wrong")
    parser.add_argument("--seed", type=int, default=1, help="of the first day; the others count on")
    parser.add_argument("--times", type=int, default=1, help="days")
    parser.add_argument("--machines", type=int, default=8, help="that the account has")
    parser.add_argument("--patience", type=float, default=1.0, help="factor of all limits, for slow hosts")
    parser.add_argument("--only", action="append", default=[], help="name of a kind of jobs or faults")
    asked = parser.parse_args()
    known = {*(kind.name for kind in kinds()), *(fault.name for fault in faults())}
    if unknown := set(asked.only) - known:
        parser.error(f"--only {sorted(unknown)}: there are {sorted(known)}")
    os.environ.update(environment())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a day that is broken off leaves nothing either
    root = Path(tempfile.mkdtemp(prefix="starburst-day-"))
    broken = False
    for seed in range(asked.seed, asked.seed + asked.times):
        plan = plan_day(seed, asked.jobs, asked.minutes * 60, asked.faults, LONGEST_S, only=asked.only)
        at_once = asked.machines + asked.machines // 2
        day = Day(plan, root / str(seed), asked.machines, at_once, asked.patience)
        wrong = day.run()
        broken = broken or bool(wrong)
        print("\n".join(day.report()), flush=True)
    if broken:
        print(f"logs are in {root}")
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
