"""Runs seeds over processes or on Ray and says what was wrong: `python -m tests.storm --seeds 1..100`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import partial

from sim.errors import SimulationError
from sim.on_ray import check_address
from tests.storm.apart import run_apart
from tests.storm.planted import PLANTED, hunt
from tests.storm.promises import held
from tests.storm.run import Ask, Told, run
from tests.storm.shrink import shrunk, told_as_story
from tests.storm.spread import spread
from tests.storm.weather import FAULTS

#: Seconds between two lines of how far a run is.
TELL_S = 60.0


def main() -> None:
    """Run, and exit with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="tests.storm", description=__doc__)
    parser.add_argument(
        "--seeds",
        type=_seeds,
        metavar="A..B",
        help="or one seed; without: 1..20, and of each planted bug the seed that finds it",
    )
    parser.add_argument("--fresh", type=int, metavar="N", help="in place of --seeds, N that only today has")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--faults", help="only these, with commas; none: all goes well")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--on", default="", metavar="ray://HOST:PORT", help="on a Ray cluster that exists")
    parser.add_argument("--no-shrink", action="store_true", help="leave the first seed that fails as it is")
    parser.add_argument("--planted", nargs="*", metavar="BUG", help="run with each planted bug, or these")
    parser.add_argument("--table", action="store_true", help="what each promise was held to, as a table")
    parser.add_argument("--list", action="store_true", help="list the faults")
    args = parser.parse_args()
    if args.list:
        for fault in FAULTS.values():
            print(f"{fault.name:20} {fault.what}")
        return
    try:
        if args.on:
            check_address("--on", args.on)
        sys.exit(_run(args) if args.planted is None else _plant(args.planted or sorted(PLANTED), args))
    except SimulationError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def _run(args: argparse.Namespace) -> bool:
    """Run all seeds; whether anything was wrong."""
    began, bad, counts, checked = time.perf_counter(), list[Told](), Counter[str](), Counter[str]()
    virtual_s = cpu_s = 0.0
    seeds = 0
    asks = list(_asks(args))
    tell = _progress(len(asks))
    for told in spread(run if args.on else run_apart, asks, on=args.on, processes=args.processes):
        seeds += 1
        tell(len(bad))
        counts += told.counts
        checked += told.checked
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
    print(f"checked: {', '.join(f'{count} {name}' for name, count in checked.most_common())}")
    print(", ".join(f"{name} {count}" for name, count in counts.most_common()))
    never = sorted(FAULTS.keys() - counts.keys())
    if never:
        print(f"never: {', '.join(never)}")
    if args.table:
        print(held(checked, seeds, virtual_s, counts))
    if bad and not args.no_shrink:
        print(told_as_story(shrunk(min(bad, key=lambda one: one.ask.seed))))
    return bool(bad)


def _progress(seeds: int) -> Callable[[int], None]:
    """What is called after each seed, with how many were wrong; a line a minute tells how far it is."""
    began = told_at = time.perf_counter()
    done = 0

    def tell(wrong: int) -> None:
        nonlocal told_at, done
        done, now = done + 1, time.perf_counter()
        if now - told_at >= TELL_S:
            told_at = now
            left_min = (now - began) / done * (seeds - done) / 60
            print(
                f"{done} of {seeds} seeds, {wrong} wrong; {left_min:.0f} min left",
                file=sys.stderr,
                flush=True,
            )

    return tell


def _plant(names: Sequence[str], args: argparse.Namespace) -> bool:
    """Hunt each planted bug; whether one was not found."""
    missed = set(names)
    asks = list(_asks(args)) if args.seeds or args.fresh else None
    for name, found in spread(partial(hunt, asks), names, on=args.on, processes=args.processes):
        missed -= {name} if found else set()
        how = f"seed {found.ask.seed}: {found.wrong[0][:90]}" if found else "NOT FOUND"
        print(f"{name:28} {how}", flush=True)
    print(
        f"{len(names) - len(missed)} of {len(names)} found; not found: {', '.join(sorted(missed)) or 'none'}"
    )
    return bool(missed)


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither A..B nor one seed") from None


def _asks(args: argparse.Namespace) -> Iterator[Ask]:
    seeds = args.seeds or _seeds("1..20")
    if args.fresh is not None:
        today = int(f"{datetime.now(timezone.utc):%Y%m%d}") * 1000
        seeds = range(today, today + args.fresh)
    faults = None if args.faults is None else frozenset(args.faults.split(",")) - {"none"}
    for seed in seeds:
        yield Ask(seed, args.jobs, args.days, faults)


if __name__ == "__main__":
    main()
