"""The result of a call, as its job wrote it into its log."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import pickle
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from starburst.client.calls import runner

#: Most lines of a result, and most characters of an unfinished line that are kept.
_LINES = 2 * runner.MAX_RESULT // runner.LINE
_UNFINISHED = 1 << 17


@dataclass(frozen=True, slots=True)
class Returned:
    """A result: `kind` is one of the runner's; `text` is a traceback, or why the value was not kept."""

    kind: str
    pickled: bytes
    text: str

    def load(self) -> Any:
        """The value or the exception; any exception if it cannot be unpickled here."""
        return pickle.loads(self.pickled)


def read_returned(texts: Iterable[str], key: bytes) -> Returned | None:
    """The last whole result in the pieces of a log; None if there is none that the key signed."""
    pattern = _pattern(key)
    parts: dict[int, str] = {}
    total = 0
    for line in _lines(texts):
        found = pattern.search(line)
        if found is None or int(found["total"]) > _LINES:
            continue
        if int(found["number"]) == 1:
            parts, total = {}, int(found["total"])
        parts[int(found["number"])] = found["part"]
    if not total or any(number not in parts for number in range(1, total + 1)):
        return None
    return _opened("".join(parts[number] for number in range(1, total + 1)), key)


def without_returned(texts: Iterable[str], key: bytes) -> Iterator[str]:
    """The pieces of a log without the lines of the result."""
    pattern = _pattern(key)
    for text in texts:
        # a line of ours is written in one piece, behind whatever line was not finished
        yield pattern.sub("", text) if text else text


def _pattern(key: bytes) -> re.Pattern[str]:
    begin = re.escape(runner.mark(key))
    return re.compile(rf"{begin} (?P<number>\d{{1,4}})/(?P<total>\d{{1,4}}) (?P<part>[A-Za-z0-9+/=]+)\n?")


def _lines(texts: Iterable[str]) -> Iterator[str]:
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).split("\n")
        yield from whole
        rest = rest[-_UNFINISHED:]
    yield rest


def _opened(text: str, key: bytes) -> Returned | None:
    try:
        signed = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    seal, packed = signed[:32], signed[32:]
    if not hmac.compare_digest(seal, hmac.new(key, packed, hashlib.sha256).digest()):
        return None
    return Returned(*pickle.loads(zlib.decompress(packed)))
