"""Expands `$(NAME)` in a container's texts, as Kubernetes does, within the size limits of a process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby

from translator.field import Field
from translator.tasks.shell import ShellExpression, ShellWord

#: Largest size of an argument or variable in Linux, bytes (MAX_ARG_STRLEN, 32 pages, less the final NUL).
MAX_TEXT = 128 * 1024 - 1
#: Largest size of all arguments and variables of a container, bytes.
MAX_SUM = 1024 * 1024

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
#: The same, but matching `$$` only.
_DOLLAR = re.compile(r"\$(?:\$|((?!)))")
#: The value of a name; None if the name is unknown.
KnownVariables = Callable[[str], ShellWord | None]


@dataclass(slots=True)
class Expansion:
    """Expands the texts of one container, within limits of each text and of their sum.

    The first text beyond a limit is refused, and later ones are not expanded. Sizes are computed before a
    text is built: forty variables, each twice the previous one, would have 10 TB.
    """

    left: int = MAX_SUM
    over: bool = False

    def expand(self, field: Field, known: KnownVariables, name: str = "") -> ShellWord:
        """The expanded text, the value of the variable `name` if given; () beyond a limit.

        `$$` becomes a dollar, and a reference to an unknown name stays unchanged (Kubernetes documentation,
        "Define Dependent Environment Variables").
        """
        written = field.text() or ""
        return () if self.over else self._fitting(field, list(_parts(written, known)), name)

    def count(self, field: Field, word: ShellWord, name: str) -> ShellWord:
        """Count a variable's value from another source; () beyond a limit."""
        return () if self.over else self._fitting(field, [word], name)

    def _fitting(self, field: Field, words: list[ShellWord], name: str) -> ShellWord:
        size = (len(name.encode()) + 1 if name else 0) + _bytes(words)
        self.left -= size
        if size > MAX_TEXT:
            self._refuse(field, f"is {size} bytes with $(NAME) filled in, more than {MAX_TEXT}", "one text")
        elif self.left < 0:
            self._refuse(field, f"brings the container to more than {MAX_SUM} bytes", "all its texts")
        return () if self.over else joined(words)

    def _refuse(self, field: Field, size: str, what: str) -> None:
        self.over = True
        field.refuse(
            f"{size}, which is what {what} may have; make it smaller, or put it into a file", show=False
        )


def names_in(text: str) -> list[str]:
    """The names that a text refers to."""
    return [match[1] for match in _references(text) if match[1]]


def joined(words: list[ShellWord]) -> ShellWord:
    """The concatenation of words; adjacent literals are merged and empty ones omitted."""
    found: list[str | ShellExpression] = []
    for is_text, group in groupby(chain.from_iterable(words), key=lambda part: isinstance(part, str)):
        parts = list(group)
        found += ["".join(map(str, parts))] if is_text else parts
    return tuple(part for part in found if part)


def _parts(text: str, known: KnownVariables) -> Iterator[ShellWord]:
    end = 0
    for match in _references(text):
        yield (text[end : match.start()],)
        end = match.end()
        value = ("$",) if match[1] is None else known(match[1])
        yield (match[0],) if value is None else value
    yield (text[end:],)


def _references(text: str) -> Iterator[re.Match[str]]:
    """References and `$$` in order, in linear time: names are not searched after the last bracket."""
    closed = text.rfind(")") + 1
    yield from _REFERENCE.finditer(text, 0, closed)
    yield from _DOLLAR.finditer(text, closed)


def _bytes(words: list[ShellWord]) -> int:
    sizes: dict[int, int] = {}  # cached: one long value may occur many times
    total = 0
    for part in chain.from_iterable(words):
        if id(part) not in sizes:
            sizes[id(part)] = len((part.code if isinstance(part, ShellExpression) else part).encode())
        total += sizes[id(part)]
    return total
