"""Fifty changes of the leader at random moments, and what they cost: `python -m tests.app.takeovers`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.app.replicas import DRAIN, KILL, STOP, Replicas

#: Changes of the leader per run of the small demo.
EACH = 5


def main() -> None:
    """Run, and exit with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="tests.app.takeovers", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    took_s: dict[str, list[float]] = {KILL: [], STOP: [], DRAIN: []}
    wrong = 0
    for number in range(asked.kills // EACH):
        draw = random.Random(f"{asked.seed}/{number}")
        lives = [draw.uniform(0.0, 1.5) for _ in range(EACH)]
        ends = [KILL] * (EACH - 1) + [draw.choice([STOP, DRAIN, KILL])]
        with tempfile.TemporaryDirectory(prefix="takeover-") as root:
            run = Replicas(number, Path(root), lives, ends=ends)
            found = run.run()
            for how, seconds in run.took_s:
                took_s.setdefault(how, []).append(seconds)
            if found:
                wrong += 1
                print("\n".join([*found, str(run.took_s), run.story()]), flush=True)
        print(f"{number + 1}: {', '.join(ends)}; {'; '.join(found) or 'all well'}", flush=True)
    for how, seconds in took_s.items():
        if seconds:
            print(f"{how}: {len(seconds)} changes of the leader, {max(seconds):.1f} s at most")
    print(f"{wrong} of {asked.kills // EACH} runs lost a job, ran one twice or left something behind")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
