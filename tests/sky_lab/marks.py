"""What jobs leave on the disk of their machine, which outlives it: each copy says when it lived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from tests.sky_lab.lab import tmp_dirs

#: Begins a script: the job's own mark, one per process that runs it.
BEGIN = """
mkdir -p /tmp/marks; mark=/tmp/marks/$STARBURST_JOB.$STARBURST_ATTEMPT.$$
echo begin; echo begin $(date +%s.%N) >>$mark
"""
#: Lives for `{beats}` fifths of a second and says so.
BEATS = """
for i in $(seq {beats}); do sleep .2; echo beat $(date +%s.%N) >>$mark; done
"""
END = """
echo end; echo end $(date +%s.%N) >>$mark
"""


@dataclass(frozen=True, slots=True)
class Copy:
    """A job's process on a machine, by its marks; wall seconds."""

    job: str
    attempt: int
    vm: str
    began_at: float
    seen_at: float
    ended: bool

    @classmethod
    def read(cls, vm: str, path: Path) -> Copy:
        job, attempt, _pid = path.name.rsplit(".", 2)
        marks = [line.split() for line in path.read_text().splitlines() if len(line.split()) == 2]
        times = [float(at) for _what, at in marks]
        return cls(job, int(attempt), vm, times[0], times[-1], marks[-1][0] == "end")


def copies_on(vms: Iterable[str]) -> list[Copy]:
    """Every copy of a job that ever ran on these machines."""
    marks = [
        (vm, path) for vm in sorted(vms) for tmp in tmp_dirs(vm) for path in sorted((tmp / "marks").glob("*"))
    ]
    return [Copy.read(vm, path) for vm, path in marks if path.stat().st_size]


def twins(copies: Iterable[Copy]) -> Iterator[str]:
    """Copies of one job that lived at one time."""
    for one, other in combinations(copies, 2):
        if one.job == other.job and max(one.began_at, other.began_at) < min(one.seen_at, other.seen_at):
            yield f"two copies lived at one time: {one}, {other}"
