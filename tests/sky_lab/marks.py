"""What jobs leave on the disk of their machine, which outlives it: each copy says when it lived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from tests.sky_lab.lab import logs, tmp_dirs

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
#: The marks of a container, which are in its log: words before "begin", "beat" and "end", and their times.
LOGGED = "mark"
BOXED = f"""
echo {LOGGED} begin $(date +%s)
for i in $(seq {{beats}}); do sleep .2; [ $((i % 5)) = 0 ] && echo {LOGGED} beat $(date +%s); done
echo {LOGGED} end $(date +%s)
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
    def read(cls, vm: str, job: str, attempt: str, lines: Iterable[str]) -> Copy | None:
        """The copy whose marks these are; None if it has none. The last line may be half written."""
        marks = [words for words in map(str.split, lines) if len(words) == 2]
        times = [float(at) for _what, at in marks]
        return cls(job, int(attempt), vm, times[0], times[-1], marks[-1][0] == "end") if marks else None


def copies_on(vms: Iterable[str]) -> list[Copy]:
    """Every copy of a job that ever ran on these machines."""
    return [copy for vm in sorted(vms) for copy in (*_copies(vm), *_boxed(vm)) if copy is not None]


def _copies(vm: str) -> Iterator[Copy | None]:
    for tmp in tmp_dirs(vm):
        for path in sorted((tmp / "marks").glob("*")):
            job, attempt, _pid = path.name.rsplit(".", 2)
            yield Copy.read(vm, job, attempt, path.read_text().splitlines())


def _boxed(vm: str) -> Iterator[Copy | None]:
    """Those in containers: one task has one container."""
    for path in (log for log in logs(vm) if log.with_name("container.json").exists()):
        job, attempt = path.parts[-4:-2]
        said = (line.partition(f"{LOGGED} ") for line in path.read_text(errors="replace").splitlines())
        yield Copy.read(vm, job, attempt, (mark for before, found, mark in said if found and not before))


def twins(copies: Iterable[Copy]) -> Iterator[str]:
    """Copies of one job that lived at one time."""
    for one, other in combinations(copies, 2):
        if one.job == other.job and max(one.began_at, other.began_at) < min(one.seen_at, other.seen_at):
            yield f"two copies lived at one time: {one}, {other}"
