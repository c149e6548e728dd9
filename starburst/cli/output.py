"""Prints listings as table, wide, json, yaml or name, with the same keys in every command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TextIO, TypeVar

import typer

from starburst.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")

#: Characters that a column takes at least where its text may be cut or folded into lines.
LEAST_CUT, LEAST_FOLDED = 6, 12
#: Spaces between two columns.
GAP = 2


class Format(str, Enum):
    """The values of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def for_people(self) -> bool:
        """Whether the format is for people, not for programs."""
        return self in (Format.TABLE, Format.WIDE)


OutputOption = Annotated[Format, typer.Option("-o", "--output", help="Output format.")]


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table: heading and cell text."""

    heading: str
    show: Callable[[T], str]
    #: Only with `-o wide`.
    wide: bool = False
    right: bool = False
    #: Where the terminal is too narrow: keep the text whole, fold it, cut it, or drop the column first.
    narrow: Literal["keep", "fold", "cut", "drop"] = "keep"
    style: Callable[[T], str] = lambda _: ""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """How rows of one kind are printed."""

    #: Prefix of names ("job/…").
    kind: str
    name: Callable[[T], str]
    #: The row as a mapping for JSON and YAML; its keys are stable (docs/cli.md).
    keys: Callable[[T], Mapping[str, object]]
    columns: Sequence[Column[T]]
    #: Message instead of an empty table.
    empty: str

    def print(self, rows: Sequence[T], how: Format) -> None:
        """Print rows in a format."""
        if how is Format.NAME:
            for row in rows:
                say(f"{self.kind}/{self.name(row)}")
        elif not how.for_people:
            print_data([self.keys(row) for row in rows], how)
        elif not rows:
            print(self.empty, file=sys.stderr)
        elif how is Format.TABLE and sys.stdout.isatty():
            from rich.console import Console  # noqa: PLC0415 - slow to import, and of no use in a pipe

            Console(highlight=False).print(self.table(rows, how))
        else:
            self._print_plain(rows, how)

    def line(self, row: T, how: Format, text: str) -> str:
        """One row of a stream: a JSON object, a YAML document, a name, or text for people."""
        if how.for_people:
            return visible(text)
        return visible(f"{self.kind}/{self.name(row)}") if how is Format.NAME else dump(self.keys(row), how)

    def table(self, rows: Sequence[T], how: Format) -> Table:
        """A coloured table without rules, as kubectl prints it."""
        from rich.table import Table  # noqa: PLC0415 - slow to import, and of no use in a pipe
        from rich.text import Text  # noqa: PLC0415

        grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        columns = self._fitting(rows, self._columns(how), get_terminal_size().columns)
        for column in columns:
            grid.add_column(
                Text(column.heading, no_wrap=True),
                justify="right" if column.right else "left",
                no_wrap=column.narrow in ("keep", "drop"),
            )
        for row in rows:
            grid.add_row(
                *[
                    Text(
                        visible(column.show(row)),
                        column.style(row),
                        no_wrap=column.narrow == "cut",
                        overflow="ellipsis" if column.narrow == "cut" else "fold",
                    )
                    for column in columns
                ]
            )
        return grid

    def _columns(self, how: Format) -> list[Column[T]]:
        return [column for column in self.columns if how is Format.WIDE or not column.wide]

    def _fitting(self, rows: Sequence[T], columns: list[Column[T]], width: int) -> list[Column[T]]:
        """The columns that fit: those to drop go first, then others from the right; the first two stay."""
        left = [(each, self._least(rows, each)) for each in columns]
        order = sorted(left[:1:-1], key=lambda one: one[0].narrow != "drop")
        for one in order:
            if sum(least + GAP for _, least in left) - GAP <= width:
                break
            left.remove(one)
        return [each for each, _ in left]

    @staticmethod
    def _least(rows: Sequence[T], column: Column[T]) -> int:
        """The characters that a column cannot do without."""
        texts = max((len(visible(column.show(row))) for row in rows), default=0)
        whole = {"cut": min(texts, LEAST_CUT), "fold": min(texts, LEAST_FOLDED)}.get(column.narrow, texts)
        return max(whole, len(column.heading))

    def _print_plain(self, rows: Sequence[T], how: Format) -> None:
        """The table for a pipe, or in full width: no cell is cut or folded."""
        columns = self._columns(how)
        lines = [
            [column.heading for column in columns],
            *([visible(c.show(row)) for c in columns] for row in rows),
        ]
        widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
        for line in lines:
            cells = [
                text.rjust(width) if column.right else text.ljust(width)
                for text, width, column in zip(line, widths, columns, strict=True)
            ]
            print("  ".join(cells).rstrip())


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line for people that may contain untrusted text."""
    print(visible(text), file=file)


def print_data(data: object, how: Format) -> None:
    """Print one object as JSON or YAML."""
    print(dump(data, how, indent=2).removeprefix("---\n"))


def dump(data: object, how: Format, *, indent: int | None = None) -> str:
    """An object of a stream: JSON, on one line without `indent`, or a YAML document."""
    if how is not Format.YAML:
        text = json.dumps(data, indent=indent, ensure_ascii=False)
        return text if visible(text, "\n") == text else json.dumps(data, indent=indent)
    import yaml  # noqa: PLC0415 - slow to import, and rarely asked for

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=10_000)
    if visible(text, "\n") != text:
        text = yaml.safe_dump(data, sort_keys=False, width=10_000)
    return f"---\n{text.rstrip()}"
