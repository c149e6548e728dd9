"""Errors of manifests, one line per problem."""

from __future__ import annotations

import json

MAX_SHOWN = 80


class ManifestError(Exception):
    """A problem of a document: its place, the value found, and the remedy."""

    def __init__(self, source: str, document: int, field: str, value: object, mend: str) -> None:
        """`document` counts from 1; `field` is a dotted path; a 0 and a `value` of None are not shown."""
        super().__init__(source, document, field, value, mend)
        self.source = source
        self.document = document
        self.field = field
        self.value = value
        self.mend = mend

    def __str__(self) -> str:
        place = f"{self.source}, document {self.document}" if self.document else self.source
        return f"{place}: {self.line}" if place else self.line

    @property
    def line(self) -> str:
        """The problem without the source of the document; what a manifest says in it is on one line too."""
        return _printable(": ".join(part for part in (self.field, shown(self.value), self.mend) if part))


class ManifestErrors(Exception):  # noqa: N818 - many of them
    """All problems of a text, which is rejected as a whole."""

    def __init__(self, errors: list[ManifestError]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def shown(value: object) -> str:
    """A scalar as a user would quote it, on one line; "" for None, a list or a mapping."""
    if value is None or isinstance(value, (list, dict)):
        return ""
    text = _printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
