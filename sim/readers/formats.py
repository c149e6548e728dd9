"""Choice of the reader by a file's first bytes and its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sim.errors import SimulationError
from sim.readers.alibaba import read_alibaba
from sim.readers.files import open_text
from sim.readers.generator import generate
from sim.readers.helios import read_helios
from sim.readers.neutral import read_neutral
from sim.readers.philly import read_philly
from sim.readers.swf import read_swf
from sim.trace import Trace

_PEEK = 4096


@dataclass(frozen=True, slots=True)
class Read:
    """A trace, and notes on jobs that were left out or changed."""

    trace: Trace
    notes: list[str] = field(default_factory=list)


def read(path: str | Path, fmt: str | None = None, *, limit: int | None = None) -> Read:
    """Read a trace from a file or from generator parameters given inline as `{…}`; the first `limit` jobs.

    `fmt` is one of FORMATS; None detects it from the file.
    """
    if fmt is not None and fmt not in FORMATS:
        raise SimulationError(f"{path}: format: {fmt}: must be one of {', '.join(FORMATS)}")
    if isinstance(path, str) and path.lstrip().startswith("{"):
        return Read(*generate(path, "workload", limit))
    file = Path(path)
    return Read(*FORMATS[fmt or _detect(file)](file, limit))


def _read_spec(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    with open_text(path) as text:
        content = text.read()
    return generate(content, str(path), limit)


FORMATS: dict[str, Callable[[Path, int | None], tuple[Trace, list[str]]]] = {
    "csv": read_neutral,
    "philly": read_philly,
    "helios": read_helios,
    "alibaba": read_alibaba,
    "swf": read_swf,
    "spec": _read_spec,
}


def _detect(path: Path) -> str:
    with open_text(path) as text:
        start = text.read(_PEEK).lstrip()
    if not start:
        raise SimulationError(f"{path}: empty: give a file with jobs")
    suffixes = {suffix.lower() for suffix in path.suffixes}
    if start[0] == "[":
        return "philly"
    if ".swf" in suffixes or start[0] == ";":
        return "swf"
    if start[0] == "{" or suffixes & {".yaml", ".yml", ".json"}:
        return "spec"
    header = {name.strip() for name in start.splitlines()[0].split(",")}
    if {"gpu_num", "submit_time"} <= header:
        return "helios"
    if {"cpu_milli", "creation_time"} <= header:
        return "alibaba"
    if len(header) > 1:
        return "csv"
    columns = "job_id,arrival_h,duration_h,gpus"
    raise SimulationError(
        f"{path}: unknown format: the first line of a CSV names its columns, such as {columns}"
    )
