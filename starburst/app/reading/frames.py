"""Length-prefixed messages over a pipe: four bytes of length (big-endian), then the body."""

from __future__ import annotations

import struct
from typing import BinaryIO

HEAD = struct.Struct(">I")


def send(pipe: BinaryIO, body: bytes) -> None:
    """Write one message."""
    pipe.write(HEAD.pack(len(body)) + body)
    pipe.flush()


def receive(pipe: BinaryIO) -> bytes | None:
    """Read one message; None at the end of the pipe, also within a message."""
    head = pipe.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    (size,) = HEAD.unpack(head)
    body = pipe.read(size)
    return body if len(body) == size else None
