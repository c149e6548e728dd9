"""How listings are printed: table, wide, json, yaml or name, with the same keys everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TextIO, TypeVar

import typer

from starburst.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")


class Format(str, Enum):
    """Of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def for_people(self) -> bool:
        """Whether people read it."""
        return self in (Format.TABLE, Format.WIDE)


OutputOption = Annotated[Format, typer.Option("-o", "--output", help="Output format.")]


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table: its heading and how a row is shown in it."""

    heading: str
    show: Callable[[T], str]
    #: Only with `-o wide`.
    wide: bool = False
    right: bool = False
    #: What gives way on a narrow terminal: its text is broken into lines, or cut to one; else kept whole.
    narrow: Literal["keep", "fold", "cut"] = "keep"
    style: Callable[[T], str] = lambda _: ""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """How rows of one kind are shown."""

    #: Stands before names ("job/…").
    kind: str
    name: Callable[[T], str]
    #: The row as JSON and YAML show it; its keys are a promise (docs/cli.md).
    keys: Callable[[T], Mapping[str, object]]
    columns: Sequence[Column[T]]
    #: Said instead of an empty table.
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
        """One row of a stream: a JSON object, a YAML document, a name, or for people the text."""
        if how.for_people:
            return visible(text)
        return visible(f"{self.kind}/{self.name(row)}") if how is Format.NAME else dump(self.keys(row), how)

    def table(self, rows: Sequence[T], how: Format) -> Table:
        """Columns without lines, as kubectl prints them, in colour."""
        from rich.table import Table  # noqa: PLC0415 - slow to import, and of no use in a pipe
        from rich.text import Text  # noqa: PLC0415

        grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        columns = self._columns(how)
        for column in columns:
            grid.add_column(
                Text(column.heading, no_wrap=True),
                justify="right" if column.right else "left",
                no_wrap=column.narrow == "keep",
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

    def _print_plain(self, rows: Sequence[T], how: Format) -> None:
        """The table for a pipe, or for those who want all of it: nothing is cut or broken."""
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
    """Print a line for people, of which a part may be others' words."""
    print(visible(text), file=file)


def print_data(data: object, how: Format) -> None:
    """Print one object as JSON or YAML."""
    print(dump(data, how, indent=2).removeprefix("---\n"))


def dump(data: object, how: Format, *, indent: int | None = None) -> str:
    """An object as one of a stream: JSON, on one line unless `indent` is given, or a YAML document."""
    if how is not Format.YAML:
        text = json.dumps(data, indent=indent, ensure_ascii=False)
        return text if visible(text, "\n") == text else json.dumps(data, indent=indent)
    import yaml  # noqa: PLC0415 - slow to import, and rarely asked for

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=10_000)
    if visible(text, "\n") != text:
        text = yaml.safe_dump(data, sort_keys=False, width=10_000)
    return f"---\n{text.rstrip()}"
