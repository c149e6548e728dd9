"""Values of sbatch's options: times, sizes, GPUs, arrays, dependencies.

Source: man page of sbatch, Slurm 24.11. Each function raises ValueError with what to write instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from starburst.domain.array import MAX_INDEX
from translator.kinds.gpu_request import GpuRequest
from translator.manifests.arrays import MAX_MEMBERS
from translator.object_names import DNS_SUBDOMAIN

_SIZE = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,4}))?(?::(\d{1,2}))?")
_ARRAY = re.compile(r"([\d,:-]+)(?:%(\d{1,9}))?")
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_COUNT = re.compile(r"\d{1,9}")
#: The annotations of dependencies.
_DEPENDENCIES = {
    "afterok": "after-ok",
    "afterany": "after-any",
    "afternotok": "after-not-ok",
    "after": "after-start",
}
#: Longest table of indices of an array that is no plain range.
MAX_LISTED = 1000


def count(text: str) -> int:
    """A number above 0."""
    if not _COUNT.fullmatch(text) or not int(text):
        raise ValueError("must be a whole number, at least 1")
    return int(text)


def seconds(text: str) -> int | None:
    """Minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]; None: no limit."""
    if text.upper() in ("UNLIMITED", "INFINITE", "0"):
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("must be minutes, hours:minutes:seconds or days-hours:minutes:seconds")
    days, first, second, third = (None if part is None else int(part) for part in found.groups())
    assert first is not None
    if days is not None:
        return days * 86400 + first * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return first * 3600 + (second or 0) * 60 + third
    return first * 60 + (second or 0)


def mebibytes(text: str) -> int:
    """A size in MiB; without a unit it is in MiB."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("must be a size such as 16G or 4096 (MiB)")
    size, unit = int(found[1]), found[2].upper() or "M"
    return -(-size // 1024) if unit == "K" else size * {"M": 1, "G": 1024, "T": 1024**2}[unit]


def gpus(text: str) -> GpuRequest:
    """The value of --gpus and its siblings: [type:]number."""
    kind, colon, number = text.rpartition(":")
    return GpuRequest.parse(f"{kind}:{number}" if colon else text)


def gres(text: str) -> GpuRequest | None:
    """The GPUs of --gres (gpu[:type][:number], possibly gres/gpu); None if it names other resources only.

    Raises:
        ValueError: it names other resources besides.
    """
    found, others = None, []
    for part in text.split(","):
        name, _, rest = part.removeprefix("gres/").replace("=", ":").partition(":")
        rest = rest.partition("(")[0]
        if name == "gpu" and found is not None:
            raise ValueError(f"{part}: a job has GPUs of one type; submit one for each")
        if name == "gpu":
            found = gpus(rest) if rest else GpuRequest(1)
        elif name.lower() != "none":
            others.append(part)
    if others:
        raise ValueError(f"{', '.join(others)}: only gpu is a resource here; remove it")
    return found


@dataclass(frozen=True, slots=True)
class ArraySpan:
    """The indices of an array, and how many of its jobs run at a time."""

    indices: tuple[int, ...]
    at_once: int | None

    @property
    def is_range(self) -> bool:
        """Whether each index follows the one before."""
        return self.indices[-1] - self.indices[0] == len(self.indices) - 1

    @property
    def step(self) -> int | None:
        """How far apart the indices are; None if that differs."""
        steps = {last - first for first, last in pairwise(self.indices)} or {1}
        return steps.pop() if len(steps) == 1 else None

    @property
    def hint(self) -> str:
        """The value of starburst.io/array: this range, or places in the table of indices."""
        first, last = (self.indices[0], self.indices[-1]) if self.is_range else (0, len(self.indices) - 1)
        return f"{first}-{last}" + ("" if self.at_once is None else f"%{self.at_once}")


def array(text: str) -> ArraySpan:
    """The value of --array: 0-7, 1,3,5, 0-15:4, 0-15%4."""
    found = _ARRAY.fullmatch(text.strip())
    parts = found[1].split(",") if found else []
    ranges = [_PART.fullmatch(part) for part in parts]
    if found is None or not all(ranges) or found[2] == "0":
        raise ValueError("write indices such as 0-7, 1,3,5 or 0-15:4, and %4 behind them for 4 at a time")
    indices: set[int] = set()
    for part in filter(None, ranges):
        first, last, step = int(part[1]), int(part[2] or part[1]), int(part[3] or 1)
        if first > last or last > MAX_INDEX or not step or (last - first) // step >= MAX_MEMBERS:
            raise ValueError(f"has at most {MAX_MEMBERS} jobs, in order, the last index at most {MAX_INDEX}")
        indices.update(range(first, last + 1, step))
    span = ArraySpan(tuple(sorted(indices)), int(found[2]) if found[2] else None)
    if not span.is_range and len(indices) > MAX_LISTED:
        raise ValueError(f"lists more than {MAX_LISTED} indices; write a range without steps")
    if len(indices) > MAX_MEMBERS:
        raise ValueError(f"has more than {MAX_MEMBERS} jobs; submit several")
    return span


def dependencies(text: str) -> dict[str, str]:
    """The value of --dependency as annotations, of jobs by id or name."""
    hints: dict[str, list[str]] = {}
    if "?" in text:
        raise ValueError("only all of several can be waited for; write a comma for the ?")
    for part in text.split(","):
        kind, *jobs = part.strip().split(":")
        if kind.lower() == "singleton" and not jobs:
            hints["singleton"] = ["true"]
            continue
        key = _DEPENDENCIES.get(kind.lower())
        if key is None or not jobs or not all(jobs):
            known = ", ".join(_DEPENDENCIES)
            raise ValueError(
                f"write singleton, or one of {known} with :JOB behind it, by id or name of jobs of Starburst"
            )
        if any("+" in job for job in jobs):
            raise ValueError("a time behind + is not kept; remove it, and let the script sleep")
        if wrong := [job for job in jobs if not DNS_SUBDOMAIN.fullmatch(job)]:
            raise ValueError(
                f"{wrong[0]}: ids and names of jobs have lower-case letters, digits, dashes and dots"
            )
        hints.setdefault(key, []).extend(jobs)
    return {key: ",".join(jobs) for key, jobs in hints.items()}


def by_node(tasks: int, nodes: int) -> str:
    """Tasks of each node as Slurm writes them: 2, 2(x3), 3,2."""
    each, more = divmod(tasks, nodes)
    runs = [(each + 1, more), (each, nodes - more)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs if times)
