"""CSV files of packing simulations: catalog, workloads, true throughputs, tasks and traces of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sim.errors import SimulationError
from sim.packing.inputs import Kind, MachineType, PackedJob, PairThroughput
from sim.readers.columns import check_numbers
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import REMEDIES, UNKNOWN, Convert, TraceTable
from sim.trace import Floats
from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources

#: Prefix of CPU columns per family; the family's name follows.
PREFIX = "cpu_"


def read_catalog(path: str | Path, *, cpu_column: str | None = None) -> list[MachineType]:
    """Columns name, family, gpu, cpu (or vcpu; or `cpu_column`), ram_gb, usd_per_hour; maybe region, spot and
    acquire_, setup_, register_ and terminate_delay_s.

    Raises:
        SimulationError: with file, line and column of all that is wrong.
    """
    sheet = _Sheet(path)
    cpu = cpu_column or ("vcpu" if "vcpu" in sheet.header and "cpu" not in sheet.header else "cpu")
    steps = [f"{step}_delay_s" for step in ("acquire", "setup", "register", "terminate")]
    sheet.words("family")
    sheet.words("region", optional=True)
    sheet.numbers("gpu", whole=True)
    sheet.numbers(cpu, positive=True)
    sheet.numbers("ram_gb", positive=True)
    sheet.numbers("usd_per_hour", positive=True)
    sheet.numbers(*steps, optional=True)
    sheet.numbers("spot", optional=True, convert=_yes)
    sheet.read("name", "machine type")
    machines = []
    for row, name in enumerate(sheet.ids):
        acquire, setup, register, terminate = (sheet.number(step, row) for step in steps)
        offer = Offer(
            name,
            Resources.of(int(sheet.number("gpu", row)), sheet.number(cpu, row), sheet.number("ram_gb", row)),
            Money.of(sheet.number("usd_per_hour", row)),
            region=sheet.word("region", row),
            spot=bool(sheet.number("spot", row)),
            family=sheet.word("family", row),
            ready_s=acquire + setup + register,
        )
        machines.append(MachineType(offer, acquire, setup, register, terminate))
    return machines


def read_workloads(path: str | Path) -> dict[str, Kind]:
    """Columns workload, full_throughput_iters_per_s and maybe fetch_, build_image_, kill_, upload_ and
    init_delay_s.

    Raises:
        SimulationError: with file, line and column of all that is wrong.
    """
    sheet = _Sheet(path)
    steps = [f"{step}_delay_s" for step in ("fetch", "build_image", "kill", "upload", "init")]
    sheet.numbers("full_throughput_iters_per_s", positive=True)
    sheet.numbers(*steps, optional=True)
    sheet.read("workload", "workload")
    return {
        name: Kind(
            name,
            sheet.number("full_throughput_iters_per_s", row),
            *(sheet.number(step, row) for step in steps),
        )
        for row, name in enumerate(sheet.ids)
    }


def read_throughput(path: str | Path) -> PairThroughput:
    """Columns workload, colocated_with, throughput: of the first beside one task of the second.

    Raises:
        SimulationError: with file, line and column of all that is wrong.
    """
    sheet = _Sheet(path)
    sheet.words("colocated_with")
    sheet.numbers("throughput", positive=True)
    sheet.read("workload", "")
    values: dict[tuple[str, str], float] = {}
    for row, workload in enumerate(sheet.ids):
        pair = workload, sheet.word("colocated_with", row)
        if pair in values:
            line = int(sheet.lines[row])
            sheet.problems.add(line, "colocated_with", pair[1], f"is given above for {workload}: keep one")
        values[pair] = sheet.number("throughput", row)
    sheet.problems.check()
    return PairThroughput(values)


def read_tasks(path: str | Path, *, prefix: str = PREFIX) -> list[Task]:
    """Columns task_id, gpu, ram_gb, cpu or `prefix`<family>; optional job_id (default: task_id) and workload.

    An empty cell of a family means that the task cannot run on it. Tasks of a job are ranked in order of
    rows.

    Raises:
        SimulationError: with file, line and column of all that is wrong.
    """
    sheet = _Sheet(path)
    demands = _demand_columns(sheet, prefix)
    sheet.words("job_id", optional=True)
    sheet.words("workload", optional=True)
    sheet.read("task_id", "task")
    ranks: Counter[str] = Counter()
    tasks = []
    for row, task_id in enumerate(sheet.ids):
        job = sheet.word("job_id", row) or task_id
        tasks.append(_task(sheet, row, demands, job, ranks[job]))
        ranks[job] += 1
    sheet.problems.check()
    return tasks


def read_jobs(
    path: str | Path, kinds: Mapping[str, Kind], *, prefix: str = PREFIX, limit: int | None = None
) -> list[PackedJob]:
    """Columns job_id, arrival_s, duration_s, workload, gpu, ram_gb, cpu or `prefix`<family>; maybe num_tasks
    and total_iters. The first `limit` rows, sorted by arrival.

    Raises:
        SimulationError: with file, line and column of all that is wrong.
    """
    sheet = _Sheet(path)
    demands = _demand_columns(sheet, prefix)
    sheet.words("workload")
    sheet.numbers("arrival_s")
    sheet.numbers("duration_s")
    sheet.numbers("num_tasks", optional=True, whole=True, positive=True)
    sheet.numbers("total_iters", optional=True, whole=True)
    sheet.read("job_id", "job", limit)
    jobs = []
    for row, job in enumerate(sheet.ids):
        if sheet.word("workload", row) not in kinds:
            remedy = f"is no workload; there are {', '.join(kinds)}"
            sheet.problems.add(int(sheet.lines[row]), "workload", sheet.word("workload", row), remedy)
        size = int(sheet.number("num_tasks", row)) or 1
        gang = tuple(_task(sheet, row, demands, job, rank) for rank in range(size))
        arrival, duration = sheet.number("arrival_s", row), sheet.number("duration_s", row)
        work = int(sheet.number("total_iters", row)) if "total_iters" in sheet.header else None
        jobs.append(PackedJob(job, arrival, duration, gang, work))
    sheet.problems.check()
    return sorted(jobs, key=lambda job: job.arrival_s)


#: Family → name of its CPU column.
_Demands = dict[str, str]


def _demand_columns(sheet: _Sheet, prefix: str) -> _Demands:
    """Request the demand columns; returns the CPU columns per family."""
    columns = [name for name in sheet.header if name.startswith(prefix) and name != prefix]
    sheet.numbers("gpu", whole=True)
    sheet.numbers("ram_gb")
    if columns and "cpu" in sheet.header:
        remedy = f"keep it or the columns by family ({prefix}…), not both"
        sheet.problems.add(1, "cpu", f"given besides {columns[0]}", remedy)
    for column in columns:
        sheet.numbers(column, convert=_number_or_empty)
    if not columns:
        sheet.numbers("cpu")
    return {column[len(prefix) :]: column for column in columns}


def _task(sheet: _Sheet, row: int, demands: _Demands, job: str, rank: int) -> Task:
    gpus, memory_gib = int(sheet.number("gpu", row)), sheet.number("ram_gb", row)
    workload = sheet.word("workload", row)
    if not demands:
        return Task(job, rank, Resources.of(gpus, sheet.number("cpu", row), memory_gib), workload=workload)
    cpus = {family: sheet.number(column, row) for family, column in demands.items()}
    known = {f: Resources.of(gpus, n, memory_gib) for f, n in cpus.items() if n != UNKNOWN}
    if not known:
        column = next(iter(demands.values()))
        sheet.problems.add(int(sheet.lines[row]), column, "", "must be given for at least one family")
        return Task(job, rank, Resources())
    largest = max(known.values(), key=lambda demand: demand.cpu_milli)
    return Task(job, rank, largest, tuple(known.items()), workload)


class _Sheet:
    """Requested columns of a CSV file, checked on reading; gives access to cells by column and row."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problems = Problems(str(path))
        with open_text(self.path) as text:
            self.header = TraceTable(text, self.problems).header
        self._words: dict[str, _Codes] = {}
        self._numbers: dict[str, tuple[Convert, bool, bool]] = {}
        self._columns: dict[str, Floats] = {}

    def words(self, name: str, *, optional: bool = False) -> None:
        """Request a text column; an optional one may be missing or have empty cells."""
        if not optional or name in self.header:
            self._words[name] = _Codes(optional)

    def numbers(
        self,
        *names: str,
        optional: bool = False,
        whole: bool = False,
        positive: bool = False,
        convert: Convert = float,
    ) -> None:
        """Request columns of numbers ≥ 0."""
        for name in names:
            if not optional or name in self.header:
                self._numbers[name] = convert, whole, positive

    def read(self, ids: str, what: str, limit: int | None = None) -> None:
        """Read and check the file; without `what` ids may repeat."""
        converts: dict[str, Convert] = {name: convert for name, (convert, _, _) in self._numbers.items()}
        with open_text(self.path) as text:
            table = TraceTable(text, self.problems)
            table.read(ids, {**converts, **self._words}, limit)
        self.ids, self.lines = [name.strip() for name in table.ids], table.lines
        self._columns = {name: table[name] for name in (*converts, *self._words)}
        if what:
            _check_names(self, ids, what)
        for name, codes in self._words.items():
            for row in np.flatnonzero(self._columns[name] == codes.empty) if not codes.optional else ():
                self.problems.add(int(self.lines[row]), name, "", "must not be empty")
        for name, (convert, whole, positive) in self._numbers.items():
            self._check(name, convert, whole, positive)
        self.problems.check()
        if not self.ids:
            raise SimulationError(f"{self.path}: no rows: add one for each {what or ids}")

    def word(self, name: str, row: int) -> str:
        """A text cell; empty if the column is missing."""
        return self._words[name].texts[int(self._columns[name][row])] if name in self._words else ""

    def number(self, name: str, row: int) -> float:
        """A numeric cell; 0 if the column is missing."""
        return float(self._columns[name][row]) if name in self._numbers else 0.0

    def _check(self, name: str, convert: Convert, whole: bool, positive: bool) -> None:
        values = self._columns[name]
        if convert is float:
            check_numbers(self.problems, self.lines, name, values, whole=whole)
        for row in np.flatnonzero(values == 0) if positive else ():
            self.problems.add(int(self.lines[row]), name, "0", "must be more than 0")


class _Codes:
    """Encodes text as numbers, so that a numeric table can hold it."""

    def __init__(self, optional: bool) -> None:
        self.optional = optional
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    @property
    def empty(self) -> int:
        """The code of the empty text; -1 if it did not occur."""
        return self._codes.get("", -1)

    def __call__(self, text: str) -> float:
        word = text.strip()
        if word not in self._codes:
            self._codes[word] = len(self.texts)
            self.texts.append(word)
        return self._codes[word]


def _check_names(sheet: _Sheet, field: str, what: str) -> None:
    seen: set[str] = set()
    for row, name in enumerate(sheet.ids):
        line = int(sheet.lines[row])
        if not name:
            sheet.problems.add(line, field, name, "must not be empty")
        elif name in seen:
            sheet.problems.add(line, field, name, f"is used above; every {what} needs its own")
        seen.add(name)


def _number_or_empty(text: str) -> float:
    if not text.strip():
        return UNKNOWN
    if (number := float(text)) < 0:
        raise ValueError
    return number


def _yes(text: str) -> float:
    return ("", "false", "no", "0", "true", "yes", "1").index(text.strip().lower()) // 4


REMEDIES[_number_or_empty] = "must be a finite number of 0 or more, or nothing"
REMEDIES[_yes] = "must be true or false"
