"""A published CSV of jobs: columns with checks, and the trace that they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sim.readers.columns import by_arrival, check_ids, check_numbers, marked, note, trace_of
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import UNKNOWN, Convert, TraceTable, number_if_known, seconds_if_known
from sim.trace import Bools, Floats, Ints, Trace

_IF_KNOWN = (number_if_known, seconds_if_known)


class JobTable:
    """One row per job. Times are in seconds since any origin; what is faulty is reported all at once."""

    def __init__(
        self,
        path: Path,
        ids: str,
        numbers: Mapping[str, Convert],
        *,
        words: Sequence[str] = (),
        numbered: bool = False,
    ) -> None:
        """`numbered`: no column has ids; `ids` is one of numbers of the row, and jobs are numbered from 1."""
        self._path = path
        self._problems = Problems(str(path))
        with open_text(path) as text:
            self._table = TraceTable(text, self._problems)
            self._table.read(ids, numbers, words=words)
        self._may_be_unknown = {name for name, kind in numbers.items() if kind in _IF_KNOWN}
        count = len(self._table.ids)
        self.ids = [str(row) for row in range(1, count + 1)] if numbered else self._table.ids
        if not numbered:
            check_ids(self._problems, self._table.lines, ids, self.ids)
        self._keep = np.ones(count, bool)
        self._notes: list[str] = []

    def __getitem__(self, name: str) -> Floats:
        return self._table[name]

    def words(self, name: str) -> list[str]:
        """A column of text."""
        return self._table.words[name]

    def are(self, name: str, words: Sequence[str]) -> Bools:
        """Rows with one of these words in a column of text."""
        return np.isin(np.array(self.words(name), object), list(words))

    def known(self, *names: str) -> Bools:
        """Rows in which all these columns are known."""
        found: Bools = np.logical_and.reduce([self[name] != UNKNOWN for name in names])
        return found

    def check(self, *names: str, lowest: int = 0, whole: bool = False) -> None:
        """Report known values of columns below `lowest`, or that are no integers if `whole`."""
        for name in names:
            values = self[name]
            if name in self._may_be_unknown:
                values = np.where(values == UNKNOWN, lowest, values)
            check_numbers(self._problems, self._lines, name, values, lowest=lowest, whole=whole)

    def wrong(
        self, rows: Bools, name: str, values: Sequence[str] | Sequence[float], remedy: Sequence[str]
    ) -> None:
        """Report values of a column, each with its remedy."""
        for row in np.flatnonzero(rows).tolist():
            self._problems.add(int(self._lines[row]), name, values[row], remedy[row])

    def leave_out(self, rows: Bools, why: str) -> None:
        """Leave these jobs out of the trace, with a note."""
        self._notes += note(marked(self.ids, rows & self._keep), f"left out, since {why}")
        self._keep &= ~rows

    def note(self, rows: Bools, what: str) -> None:
        """A note of what was changed for those of these jobs that are not left out."""
        self._notes += note(marked(self.ids, rows & self._keep), what)

    def whole_gpus(self, shares: Floats) -> Floats:
        """GPUs of a task; a share of a GPU becomes a whole one, with a note."""
        self.note(shares != np.floor(shares), "with a share of a GPU given a whole one")
        return np.ceil(shares)

    def trace(
        self,
        limit: int | None,
        *,
        submit_s: Floats,
        run_s: Floats,
        gpus: Floats,
        cpus: Floats | None = None,
        memory_gib: Floats | None = None,
        nodes: Floats | None = None,
        users: list[str] | None = None,
    ) -> tuple[Trace, list[str]]:
        """The jobs by arrival, and the notes.

        Raises:
            SimulationError: all problems found, by line and column; or no job is left.
        """
        self._problems.check()
        trace = trace_of(
            self.ids,
            submit_s / 3600,
            run_s / 3600,
            gpus,
            cpus=cpus,
            memory_gib=memory_gib,
            nodes=nodes,
            users=users,
        )
        return by_arrival(trace, self._keep, str(self._path), limit), self._notes

    @property
    def _lines(self) -> Ints:
        return self._table.lines
