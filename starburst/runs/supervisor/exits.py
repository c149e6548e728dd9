"""How a task ended, as its supervisor wrote it: the only parser of `exit.json`.

A job may be able to write that file, and a rented machine may answer anything in its place, so every field is
checked. Anything unsound counts as no exit, as if the supervisor had been killed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from starburst.runs.supervisor.files import read_plain

#: What ended a task, as `exit.json` says it.
ITSELF, STOP, TIME_LIMIT, LEASE, REFUSAL = "itself", "stop", "time_limit", "lease", "refusal"
#: Its machine: what ran the task there died, or has no room for it.
LOSS = "loss"
ENDERS = frozenset({ITSELF, STOP, TIME_LIMIT, LEASE, REFUSAL, LOSS})
#: The file in which a container's command says how it ended, if its exit code does not say it.
VERDICT = "verdict.json"

#: The message of a task that was killed for want of memory; the first word is Kubernetes'.
OUT_OF_MEMORY = "OOMKilled: a process ran out of"

#: A larger file is no exit.
MAX_BYTES = 4096
MAX_MESSAGE = 1000
#: Bytes of a message as JSON, which has up to twelve for a character; the rest is for the other fields.
MAX_MESSAGE_BYTES = MAX_BYTES - 512
#: Exit codes as shells have them; and signals of Linux.
MAX_CODE, MAX_SIGNAL = 255, 64
#: Epoch seconds at most: the year 5138.
MAX_TIME = 1e11


@dataclass(frozen=True)
class Exit:
    """How a task ended, as its supervisor saw it."""

    #: As shells have it: 128 plus the number of the signal that killed it. None: it never ran.
    exit_code: int | None
    signal: int | None
    ended_by: str
    message: str
    #: Epoch seconds of the wall's clock.
    started_at: float
    ended_at: float

    @property
    def went_well(self) -> bool:
        """Whether it succeeded, a requested stop included."""
        return self.exit_code == 0 and self.ended_by in (ITSELF, STOP)


def message_of(text: str) -> str:
    """A text as an exit can have it for its message: one printable line, cut to what there is room for."""
    line = "".join(char if char.isprintable() else " " for char in text[:MAX_MESSAGE])
    while len(json.dumps(line)) > MAX_MESSAGE_BYTES:
        line = line[:-1]
    return line


def read_exit(text: bytes | str) -> Exit | None:
    """The exit in a JSON text; None if it is none."""
    if len(text) > MAX_BYTES:
        return None
    try:
        return exit_of(json.loads(text))
    except (ValueError, RecursionError):
        return None


def exit_of(said: object) -> Exit | None:
    """The exit in a decoded JSON value; None if it is none."""
    if not isinstance(said, dict) or said.keys() != Exit.__dataclass_fields__.keys():
        return None
    checks = (
        _is_number(said["exit_code"], 0, MAX_CODE),
        _is_number(said["signal"], 1, MAX_SIGNAL),
        isinstance(said["ended_by"], str) and said["ended_by"] in ENDERS,
        _is_message(said["message"]),
        is_time(said["started_at"]),
        is_time(said["ended_at"]),
    )
    return Exit(**said) if all(checks) else None


def load_exit(path: str | os.PathLike[str]) -> Exit | None:
    """The exit in a file; None if there is none."""
    text = read_plain(path, MAX_BYTES)
    return None if text is None else read_exit(text)


def _is_number(value: Any, least: int, most: int) -> bool:
    return value is None or (type(value) is int and least <= value <= most)


def _is_message(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_MESSAGE and (not value or value.isprintable())


def is_time(value: Any) -> bool:
    """Whether a decoded JSON value is a time in epoch seconds."""
    return type(value) in (int, float) and 0 <= value <= MAX_TIME  # NaN is neither
