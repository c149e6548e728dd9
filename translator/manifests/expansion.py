"""`$(NAME)` in a container's texts, filled in as Kubernetes does, within what a program can be given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby

from translator.field import Field
from translator.tasks.shell import ShellExpression, ShellWord

#: Bytes of one argument or variable that Linux takes (MAX_ARG_STRLEN, 32 pages, less the zero at the end).
MAX_TEXT = 128 * 1024 - 1
#: Bytes of all arguments and variables of a container.
MAX_SUM = 1024 * 1024

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
#: The same without names.
_DOLLAR = re.compile(r"\$(?:\$|((?!)))")
#: What a name stands for; None is an unknown one.
KnownVariables = Callable[[str], ShellWord | None]


@dataclass(slots=True)
class Expansion:
    """The texts of one container, filled in one after the other, each and all within bounds.

    What is too long is refused by its field, once, and nothing is filled in any more. Sizes are added up
    before a text is made: forty variables that double each other would be 10 TB.
    """

    left: int = MAX_SUM
    over: bool = False

    def expand(self, field: Field, known: KnownVariables, name: str = "") -> ShellWord:
        """A text with its `$(NAME)` filled in, of the variable `name`; no text if it is too long.

        `$$` is a dollar, and an unknown name stays as it is written (Kubernetes documentation, "Define
        Dependent Environment Variables").
        """
        written = field.text() or ""
        return () if self.over else self._fitting(field, list(_parts(written, known)), name)

    def count(self, field: Field, word: ShellWord, name: str) -> ShellWord:
        """A variable's value from elsewhere, if there is room for it."""
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
    """One word of many: texts side by side made one, and empty ones left out."""
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
    """In linear time: behind the last bracket no name can end, and none is looked for."""
    closed = text.rfind(")") + 1
    yield from _REFERENCE.finditer(text, 0, closed)
    yield from _DOLLAR.finditer(text, closed)


def _bytes(words: list[ShellWord]) -> int:
    sizes: dict[int, int] = {}  # one long value may stand there a thousand times
    total = 0
    for part in chain.from_iterable(words):
        if id(part) not in sizes:
            sizes[id(part)] = len((part.code if isinstance(part, ShellExpression) else part).encode())
        total += sizes[id(part)]
    return total
