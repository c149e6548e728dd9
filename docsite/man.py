"""Man pages of all commands: `python -m docsite.man DIRECTORY`.

`starburst.1` lists the commands; each has a page of its own, such as `starburst-config-check.1`. The format
is man(7), for groff and mandoc.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from docsite.commands import Command, Parameter, commands
from starburst import __version__

SUMMARY = "a hybrid-cloud burst scheduler for GPU clusters"
CLI = Path(__file__).parents[1] / "docs" / "cli.md"


def pages() -> dict[str, str]:
    """The text of each page by its file's name."""
    found = commands()
    made = {f"{command.name.replace(' ', '-')}.1": of_command(command) for command in found}
    return {"starburst.1": overview(found), **made}


def of_command(command: Command) -> str:
    """The page of one command."""
    parts = [_head(command.name.replace(" ", "-"), command.summary), ".SH SYNOPSIS", _text(command.usage)]
    parts += _section("ARGUMENTS", command.arguments) + _section("OPTIONS", command.options)
    return "\n".join([*parts, ".SH SEE ALSO", ".BR starburst (1)", ""])


def overview(found: Iterable[Command]) -> str:
    """The page of the program, with exit codes and environment as docs/cli.md lists them."""
    listed = [Parameter(command.name, command.summary) for command in found]
    parts = [_head("starburst", SUMMARY), ".SH SYNOPSIS", ".B starburst", "COMMAND [OPTIONS]"]
    parts += _section("COMMANDS", listed)
    parts += _section("EXIT STATUS", _rows("Exit codes")) + _section("ENVIRONMENT", _rows("Environment"))
    return "\n".join([*parts, ""])


def _head(name: str, summary: str) -> str:
    title = f'.TH "{name.upper()}" "1" "" "starburst {__version__}" "User Commands"'
    return f"{title}\n.nh\n.ad l\n.SH NAME\n{_text(name)} \\- {_text(summary)}"


def _section(title: str, parameters: Iterable[Parameter]) -> list[str]:
    lines = []
    for each in parameters:
        words = _text(each.words).replace("|", "|\\:")  # long choices may go over several lines
        lines += [".TP", f".B {words}", _text(each.help)]
    return [f".SH {title}", *lines] if lines else []


def _rows(heading: str) -> list[Parameter]:
    """The rows of the table below a heading of docs/cli.md."""
    section = CLI.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`?\w.*?) \| (.*) \|$", section, re.MULTILINE)[1:]
    return [Parameter(_plain(first), _plain(second)) for first, second in rows]


def _plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "").replace("\\|", "|")


def _text(text: str) -> str:
    """Text as roff reads it: backslashes and hyphens stay, and no line begins with a control character."""
    kept = " ".join(text.split()).replace("\\", "\\(rs").replace("-", "\\-")
    return f"\\&{kept}" if kept[:1] in (".", "'") else kept


def write(target: Path) -> list[Path]:
    """Write all pages into a directory."""
    target.mkdir(parents=True, exist_ok=True)
    for name, text in (made := pages()).items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in made]


if __name__ == "__main__":
    print(f"{len(write(Path(sys.argv[1])))} man pages in {sys.argv[1]}")
