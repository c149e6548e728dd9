"""Runs seeds over processes and says what was wrong: `python -m tests.storm --seeds 1..100`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.storm.planted import PLANTED, hunted
from tests.storm.run import Ask, Told, run
from tests.storm.shrink import shrunk, told_as_story
from tests.storm.weather import FAULTS


def main() -> None:
    """Run, and exit with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="tests.storm", description=__doc__)
    parser.add_argument("--seeds", default="1..20", help="A..B, or one")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--faults", help="only these, with commas; none: all goes well")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--shrink", action="store_true", help="reduce the first seed that fails, and tell it")
    parser.add_argument("--planted", nargs="*", metavar="BUG", help="run with each planted bug, or these")
    parser.add_argument("--list", action="store_true", help="list the faults")
    args = parser.parse_args()
    if args.list:
        for fault in FAULTS.values():
            print(f"{fault.name:20} {fault.what}")
        return
    if args.planted is not None:
        sys.exit(_plant(args.planted or sorted(PLANTED), args))
    sys.exit(_run(args))


def _run(args: argparse.Namespace) -> bool:
    """Run all seeds; whether anything was wrong."""
    began, bad, counts = time.perf_counter(), list[Told](), Counter[str]()
    virtual_s = cpu_s = 0.0
    seeds = 0
    for told in _told(_asks(args), args.processes):
        seeds += 1
        counts += told.counts
        virtual_s, cpu_s = virtual_s + told.virtual_s, cpu_s + told.cpu_s
        if told.wrong:
            bad.append(told)
            print(f"seed {told.ask.seed}: {told.digest[:12]}")
            for line in told.wrong[:8]:
                print(f"    {line[:600]}")
            sys.stdout.flush()
    wall_s = time.perf_counter() - began
    print(
        f"{seeds} seeds, {len(bad)} with something wrong; {virtual_s / 86_400:.0f} virtual days, "
        f"{sum(counts.values())} faults of {len(+counts)} kinds, {wall_s:.0f} s, {cpu_s:.0f} CPU s"
    )
    print(", ".join(f"{name} {count}" for name, count in counts.most_common()))
    never = sorted(FAULTS.keys() - counts.keys())
    if never:
        print(f"never: {', '.join(never)}")
    if bad and args.shrink:
        print(told_as_story(shrunk(min(bad, key=lambda one: one.ask.seed))))
    return bool(bad)


def _plant(names: Iterable[str], args: argparse.Namespace) -> bool:
    """Hunt each planted bug; whether one was not found."""
    missed = []
    for name in names:
        found = hunted(PLANTED[name], _asks(args))
        missed += [] if found is not None else [name]
        how = f"seed {found.ask.seed}: {found.wrong[0][:90]}" if found else "NOT FOUND"
        print(f"{name:28} {how}", flush=True)
    print(f"not found: {', '.join(missed) or 'none'}")
    return bool(missed)


def _asks(args: argparse.Namespace) -> Iterator[Ask]:
    first, _, last = args.seeds.partition("..")
    faults = None if args.faults is None else frozenset(args.faults.split(",")) - {"none"}
    for seed in range(int(first), int(last or first) + 1):
        yield Ask(seed, args.jobs, args.days, faults)


def _told(asks: Iterator[Ask], processes: int) -> Iterator[Told]:
    if processes == 1:
        yield from map(run, asks)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
        yield from pool.map(run, asks)


if __name__ == "__main__":
    main()
