"""The commands of `starburst` as Typer knows them: one record each, and the reference page of them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import typer

from docsite.markdown import cell, code, table
from starburst.cli.main import app


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or an option: how it is written, and what it does."""

    words: str
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that does something; `starburst config` alone does not, `starburst config check` does."""

    name: str
    summary: str
    usage: str
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]


def commands() -> list[Command]:
    """All commands, in the order of `starburst --help`."""
    return list(_below(typer.main.get_command(app), "starburst"))


def _below(command: Any, name: str) -> Iterator[Command]:
    if hasattr(command, "commands"):
        for word in command.commands:
            yield from _below(command.commands[word], f"{name} {word}")
        return
    context = typer.Context(command, info_name=name)
    usage = command.get_usage(context).partition(": ")[2]
    parameters = [each for each in command.params if not each.hidden]
    yield Command(
        name,
        " ".join((command.help or "").split()),
        " ".join(usage.split()),
        tuple(_parameters(context, parameters, "argument")),
        tuple(_parameters(context, parameters, "option")),
    )


def _parameters(context: typer.Context, found: Iterable[Any], kind: str) -> Iterator[Parameter]:
    for each in found:
        if each.param_type_name == kind:
            words, help_text = each.get_help_record(context)
            yield Parameter(each.metavar if kind == "argument" and each.metavar else words, help_text)


def page() -> str:
    """The reference of all commands, as Markdown."""
    found = commands()
    lines = [
        "# Commands\n",
        "Each command with its arguments and options, as `starburst COMMAND -h` prints them. What they",
        "do, with examples and exit codes: [The command line](../cli.md).\n",
    ]
    for command in found:
        lines += [f"## {command.name}\n", f"{command.summary}\n", f"```\n{command.usage}\n```\n"]
        for title, parameters in (("Argument", command.arguments), ("Option", command.options)):
            rows = [(code(each.words), cell(each.help)) for each in parameters]
            lines += table((title, ""), rows)
    return "\n".join(lines)
