"""The long form of `chaos`: `python -m tests.kube.long_chaos --jobs 150 --minutes 10 --seed 1`.

A cluster of two real kubelets, faults of users, of the programs and of the cluster's own parts for ten
minutes, then all jobs have to end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.kube.chaos import FAULTS, run, uptime_s
from tests.kube.deep_faults import DEEP_FAULTS, small_home
from tests.kube.lab import kubelets


def main() -> int:
    """Run it and tell; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--faults", default="", help="names of functions, with commas; all of them without it"
    )
    asked = parser.parse_args()
    known = {fault.__name__: fault for fault in (*FAULTS, *DEEP_FAULTS)}
    faults = [known[name] for name in filter(None, asked.faults.split(","))] or list(known.values())
    with kubelets(2) as lab, tempfile.TemporaryDirectory(prefix="starburst-chaos-") as directory:
        began, root = time.monotonic(), Path(directory)
        with small_home(root / "home"):
            chaos, verdict, failed = run(
                lab,
                root,
                jobs=asked.jobs,
                seconds=60 * asked.minutes,
                seed=asked.seed,
                faults=faults,
            )
        took_s = time.monotonic() - began
        if not verdict.sound:
            print(f"uptime {uptime_s():.1f} s at {time.strftime('%H:%M:%S')}")
            print(chaos.placements())
    print(f"{asked.jobs} jobs, {len(chaos.story)} faults, {took_s:.0f} s: {verdict}; not succeeded: {failed}")
    return 0 if verdict.sound and set(failed) <= set(verdict.killed) else 1


if __name__ == "__main__":
    sys.exit(main())
