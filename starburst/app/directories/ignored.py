"""Which files of a directory the patterns of its ignore files leave out, by the rules of gitignore(5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

_CLASS = re.compile(r"\[(!?)(\]?[^\]]*)\]")


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of an ignore file."""

    #: Matches paths below the directory of its file.
    regex: re.Pattern[str]
    #: It takes back what an earlier one leaves out.
    keeps: bool
    directories_only: bool


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of one file."""

    #: Its directory: a path below the root that ends with /, or "" for it.
    base: str
    patterns: tuple[IgnorePattern, ...]
    #: Of a file above the root: the path of the root below its directory, which ends with /.
    above: str = ""


def read_patterns(text: str) -> tuple[IgnorePattern, ...]:
    """The patterns of an ignore file."""
    return tuple(pattern for line in text.splitlines() if (pattern := _pattern(line)) is not None)


def is_ignored(path: str, files: Iterable[IgnoreFile], *, is_directory: bool) -> bool:
    """Whether a path (relative to the root) is left out: the last pattern that matches it decides.

    The directories around it must have been asked before: what lies in one that is left out stays out.
    """
    ignored = False
    for file in files:
        if not path.startswith(file.base):
            continue
        below = file.above + path[len(file.base) :]
        for pattern in file.patterns:
            if (is_directory or not pattern.directories_only) and pattern.regex.fullmatch(below):
                ignored = not pattern.keeps
    return ignored


@lru_cache(maxsize=4096)
def _pattern(line: str) -> IgnorePattern | None:
    text = re.sub(r"(?<!\\)\s+$", "", line)
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[1:] if keeps else text
    directories_only = text.endswith("/")
    text = text.rstrip("/") if directories_only else text
    is_anchored = "/" in text
    regex = "".join(_regex(text.removeprefix("/")))
    return IgnorePattern(
        re.compile(regex if is_anchored else f"(?:.*/)?{regex}", re.DOTALL), keeps, directories_only
    )


def _regex(text: str) -> Iterator[str]:
    """The parts of a regular expression for a pattern."""
    place = 0
    while place < len(text):
        rest = text[place:]
        if rest.startswith("**/") and (place == 0 or text[place - 1] == "/"):
            yield "(?:.*/)?"
            place += 3
        elif rest == "**" and place and text[place - 1] == "/":
            yield ".+"
            place += 2
        elif rest[0] == "*":
            yield "[^/]*"
            place += len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            yield "[^/]"
            place += 1
        elif rest[0] == "[" and (found := _CLASS.match(rest)):
            inside = found[2].replace("\\", "\\\\").replace("[", "\\[")
            yield f"[{'^/' if found[1] else ''}{inside}]"
            place += found.end()
        else:
            taken = rest[1:2] if rest[0] == "\\" and len(rest) > 1 else rest[0]
            yield re.escape(taken)
            place += 2 if rest[0] == "\\" and len(rest) > 1 else 1
