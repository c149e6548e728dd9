"""Makes untrusted text safe for terminals: control characters are escaped."""

from __future__ import annotations

import re

#: Text without characters that terminals or editors interpret: ESC, CR, C1 controls, bidirectional marks.
_PLAIN = re.compile(r"[ -~]*")
#: Escape sequences that only set colours.
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_COLOUR_BEGUN = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z")
#: Control characters that are allowed in logs.
_OF_LOGS = "\n\r\t\b"


def visible(text: str, also: str = "") -> str:
    r"""The text with non-printable characters as `\x1b` etc.; those in `also` are kept."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(c if c.isprintable() or c in also else c.encode("unicode_escape").decode() for c in text)


class LogFilter:
    """Filters a job's log for a terminal: newlines, progress bars and colours pass; sequences that move the
    cursor, query the terminal or set titles are escaped.
    """

    def __init__(self) -> None:
        self._held = ""

    def __call__(self, part: str) -> str:
        """Filter the next piece; an incomplete colour sequence at its end is held back."""
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
        """The held-back end of the log."""
        held, self._held = self._held, ""
        return visible(held)
