"""CSV into columns, in chunks, so that a million rows are never in memory as rows."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import islice
from math import isfinite, nan
from sys import intern
from typing import TextIO

import numpy as np

from sim.readers.problems import Problems
from sim.trace import Floats, Ints

#: Rows per chunk; small enough for the processor's cache.
CHUNK = 1_000
#: Value for "not recorded", as in the Standard Workload Format.
UNKNOWN = -1.0
_BLANK = {"", "none", "nan", "null"}

#: Text → number; a ValueError or a non-finite number is reported as a problem.
Convert = Callable[[str], float]


def number_if_known(text: str) -> float:
    """A number; UNKNOWN for a blank cell."""
    return UNKNOWN if text.strip().lower() in _BLANK else float(text)


def seconds(text: str) -> float:
    """A date and time in Unix seconds; a time without zone is taken as UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def seconds_if_known(text: str) -> float:
    """A date and time in Unix seconds; UNKNOWN for a blank cell."""
    return UNKNOWN if text.strip().lower() in _BLANK else seconds(text)


REMEDIES: dict[Convert, str] = {
    float: "must be a finite number",
    number_if_known: "must be a finite number or nothing",
    seconds: "must be a time such as 2020-06-09 18:41:01",
    seconds_if_known: "must be a time such as 2020-06-09 18:41:01 or nothing",
}


class TraceTable:
    """A CSV file; `read` fills the columns. Their names are in its first line, or given as `header`."""

    def __init__(self, text: TextIO, problems: Problems, header: Sequence[str] = ()) -> None:
        self._rows = csv.reader(text, strict=True)
        self._problems = problems
        self.header = list(header) or [name.strip() for name in next(self._chunk(1), [])]
        if not any(self.header):
            raise problems.stop(1, "file", "empty", "the first line must name the columns")
        for name in filter(None, self.header):
            if self.header.count(name) > 1:
                raise problems.stop(1, name, "given twice", "keep one of the columns")
        self.ids: list[str] = []
        self.words: dict[str, list[str]] = {}
        self._lines = array("q")
        self._numbers: dict[str, array[float]] = {}

    @property
    def lines(self) -> Ints:
        """Line number of each row."""
        return np.array(self._lines, np.int64)

    def __getitem__(self, name: str) -> Floats:
        return np.array(self._numbers[name], np.float64)

    def read(
        self, ids: str, columns: Mapping[str, Convert], limit: int | None = None, words: Sequence[str] = ()
    ) -> None:
        """Read the id column, numeric columns and columns of text, at most `limit` rows."""
        for name in (ids, *columns, *words):
            if name not in self.header:
                self._problems.add(1, name, "no such column", "add it to the first line and to every row")
        self._problems.check()
        self._numbers = {name: array("d") for name in columns}
        self.words = {name: [] for name in words}
        at = {name: self.header.index(name) for name in (ids, *columns, *words)}
        while limit is None or len(self.ids) < limit:
            before = self._rows.line_num
            rows = list(self._chunk(CHUNK if limit is None else min(CHUNK, limit - len(self.ids))))
            if not rows:
                break
            lines, cells = self._whole(rows, self._places(rows, before))
            self._lines.extend(lines)
            if cells:
                self.ids.extend(cells[at[ids]])
            for name in words if cells else ():
                self.words[name].extend(intern(cell.strip()) for cell in cells[at[name]])
            for name in columns if cells else ():
                self._numbers[name].extend(self._convert(name, columns[name], cells[at[name]], lines))

    def _chunk(self, size: int) -> Iterator[list[str]]:
        try:
            yield from islice(self._rows, size)
        except csv.Error as error:
            remedy = "correct the quotes around this cell"
            raise self._problems.stop(self._rows.line_num, "row", error, remedy) from None

    def _places(self, rows: Sequence[Sequence[str]], before: int) -> Sequence[int]:
        """Line numbers of rows; a quoted cell may contain line breaks."""
        if self._rows.line_num - before == len(rows):
            return range(before + 1, before + len(rows) + 1)
        heights = [1 + sum(cell.count("\n") for cell in row) for row in rows]
        return [int(line) for line in before + 1 + np.cumsum([0, *heights[:-1]])]

    def _whole(
        self, rows: list[list[str]], lines: Sequence[int]
    ) -> tuple[Sequence[int], list[tuple[str, ...]]]:
        """The rows as columns; blank lines are skipped and rows of wrong length reported."""
        width = len(self.header)
        if set(map(len, rows)) != {width}:
            for line, row in zip(lines, rows, strict=True):
                if row and len(row) != width:
                    self._problems.add(
                        line, "row", f"{len(row)} cells", f"must be {width}, as in the first line"
                    )
            keep = [index for index, row in enumerate(rows) if len(row) == width]
            lines, rows = [lines[index] for index in keep], [rows[index] for index in keep]
        return lines, list(zip(*rows, strict=True))

    def _convert(
        self, name: str, convert: Convert, cells: Sequence[str], lines: Sequence[int]
    ) -> Iterable[float]:
        try:
            numbers = array("d", map(convert, cells))
            if np.isfinite(numbers).all():
                return numbers
        except (ValueError, OverflowError):
            pass
        return [self._one(name, convert, cell, line) for cell, line in zip(cells, lines, strict=True)]

    def _one(self, name: str, convert: Convert, cell: str, line: int) -> float:
        try:
            number = convert(cell)
        except (ValueError, OverflowError):
            number = nan
        if not isfinite(number):
            self._problems.add(line, name, cell, REMEDIES[convert])
            return nan
        return number
