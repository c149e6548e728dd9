"""Rounds of kills and cut networks one after the other, and the log that is kept of them.

`python -m tests.sky_lab.chaos --rounds 30 --log docs/results/leaks.md` does rounds and keeps their log.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.sky_lab.lab import environment
from tests.sky_lab.plan import Fate, plan
from tests.sky_lab.round import Round, left_of

#: Where the log begins in its file; what is written above stays.
TABLE = """| round | what happened | machines | zero after, s | round, s | load | wrong |
| ---: | --- | ---: | ---: | ---: | ---: | --- |
"""


def row(done: Round) -> str:
    """A line of the log."""
    fate = done.plan.fate
    told = [what.partition(": ")[2] for what in done.story]
    happened = [*told, *([fate.value] if fate is not Fate.LIVES else [])]
    cells = (
        done.plan.number,
        "; ".join(happened),
        len(done.seen),
        f"{done.gone_s:.0f}",
        f"{done.took_s:.0f}",
        f"{os.getloadavg()[0]:.1f}",
        "; ".join(done.wrong) or "nothing",
    )
    return f"| {' | '.join(map(str, cells))} |"


def summary(rows: Sequence[str], left: Sequence[str]) -> str:
    """Of all rows of the log."""
    times = [int(row.split("|")[5]) for row in rows]
    wrong = sum(not row.endswith("| nothing |") for row in rows)
    return (
        f"{len(rows)} rounds, {wrong} of them wrong, {len(left)} machines left after the last. A round took "
        f"{min(times)} to {max(times)} s, {sum(times) / len(times):.0f} s on average.\n"
    )


def main() -> int:
    """Do rounds and log each as it is over; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="goes on with a log; 0 begins it anew")
    parser.add_argument("--log", type=Path, required=True)
    asked = parser.parse_args()
    os.environ.update(environment())
    head, _, old = (asked.log.read_text() if asked.log.exists() else "").partition(TABLE)
    rows = [line for line in old.splitlines() if line.startswith("|")] if asked.first else []
    done: list[Round] = []
    root = Path(tempfile.mkdtemp(prefix="starburst-rounds-"))
    for number in range(asked.first, asked.first + asked.rounds):
        done.append(Round(plan(number), root / str(number)))
        done[-1].run()
        rows.append(row(done[-1]))
        print(rows[-1], flush=True)
        left = left_of(done)
        asked.log.write_text(head + TABLE + "\n".join(rows) + "\n\n" + summary(rows, left))
    if left or any(one.wrong for one in done):
        print(f"left: {left}; logs are in {root}")
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
