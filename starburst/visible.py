"""Texts of others as a terminal may be given them: what would steer it is written out."""

from __future__ import annotations

import re

#: A text without anything that a terminal or an editor acts on: ESC, CR, C1, marks of direction.
_PLAIN = re.compile(r"[ -~]*")
#: Escape sequences that only colour what follows.
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_COLOUR_BEGUN = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z")
#: What else logs may hold, as every program's do.
_OF_LOGS = "\n\r\t\b"


def visible(text: str, also: str = "") -> str:
    r"""The text with every sign that is not printed as `\x1b` or the like; those of `also` are kept."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(c if c.isprintable() or c in also else c.encode("unicode_escape").decode() for c in text)


class LogFilter:
    """A job's log for a terminal: lines, progress bars and colours stay; nothing moves, asks or names it."""

    def __init__(self) -> None:
        self._held = ""

    def __call__(self, part: str) -> str:
        """The next part; the beginning of a colour at its end is held back until more comes."""
        text = self._held + part
        begun = _COLOUR_BEGUN.search(text)
        self._held = text[begun.start() :] if begun else ""
        text = text[: begun.start()] if begun else text
        shown, end = list[str](), 0
        for colour in _COLOUR.finditer(text):
            shown += (visible(text[end : colour.start()], _OF_LOGS), colour[0])
            end = colour.end()
        return "".join([*shown, visible(text[end:], _OF_LOGS)])

    def rest(self) -> str:
        """What is still held back when nothing more comes."""
        held, self._held = self._held, ""
        return visible(held)
