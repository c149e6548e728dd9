"""Fuzz every way in: python -m tests.translator.fuzz --minutes 1

Manifests, tasks and scripts are bent: values are replaced, moved between documents, wrapped, repeated and
renamed, and their text is cut, joined and given aliases. Each must be read, or refused with lines: no
traceback, no case over LIMIT_S of processor time, no more than MEMORY_MIB above the start. Minutes are those
of the processor too, so that as many cases are tried beside other work.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType

from tests.translator.fuzz.bending import text_of
from tests.translator.fuzz.sources import Sources, sources
from tests.translator.fuzz.ways import WAYS, refusal

#: Processor seconds that a case may take, and after which it is ended where it is.
LIMIT_S, HANG_S = 2.0, 10.0
MEMORY_MIB = 200
MOST_PROBLEMS = 20


class HangError(BaseException):
    """A case took HANG_S; no handler of `Exception` on the way holds it up."""


def main() -> int:
    """Fuzz for some minutes; 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=5.0, help="of processor time")
    parser.add_argument("--first", type=int, help="the first seed; drawn if not given")
    parser.add_argument("--seed", type=int, help="repeat the case of this seed only")
    wanted = parser.parse_args()
    of = sources()
    limit_memory()
    signal.signal(signal.SIGPROF, hangs)
    if wanted.seed is not None:
        print(text_of(wanted.seed, of))
        return report(wanted.seed, of)
    ends, failed = time.process_time() + wanted.minutes * 60, 0
    seed = first = random.randrange(10**9) if wanted.first is None else wanted.first
    while time.process_time() < ends and failed < MOST_PROBLEMS:
        failed += report(seed, of)
        seed += 1
    print(f"{seed - first} cases from seed {first}, {failed} problems")
    return 1 if failed else 0


def limit_memory() -> None:
    """Let this process have MEMORY_MIB more than now; a case that needs more fails with a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_MIB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def hangs(_: int, where: FrameType | None) -> None:
    """End the case that is under way: the handler of its alarm."""
    raise HangError(f"over {HANG_S:g} s")


def report(seed: int, of: Sources) -> int:
    """Print what went wrong with the case of a seed; how much that is."""
    found = problems(seed, of)
    for problem in found:
        print(f"seed {seed}: {problem}", file=sys.stderr, flush=True)
    return len(found)


def problems(seed: int, of: Sources) -> list[str]:
    """What went wrong with the case of a seed, by every way in."""
    text = text_of(seed, of)
    found = []
    for name, way in WAYS.items():
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, HANG_S)
        try:
            lines = refusal(way, text, random.Random(seed))
            if not all(line.strip() and "\n" not in line for line in lines):
                found.append(f"{name}: a problem without a line")
        except (Exception, HangError):
            found.append(f"{name}: {traceback.format_exc()}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if time.process_time() - started > LIMIT_S:
            found.append(f"{name}: took {time.process_time() - started:.1f} s")
    return found


if __name__ == "__main__":
    sys.exit(main())
