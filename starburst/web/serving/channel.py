"""A non-blocking message channel between the scheduler and its API process, and what they agree on."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from starburst.app.config.http import HttpConfig

#: Bytes per message, and messages per read.
MOST_BYTES = 65_536
MOST = 200


#: A heartbeat of the scheduler: the time, in monotonic seconds.
BEAT = struct.Struct("=d")


class StartupParameters(BaseModel):
    """The JSON argument of the API process."""

    home: Path
    http: HttpConfig
    #: The log is text for people, not JSON.
    text: bool
    #: Numbers of inherited file descriptors: the bound socket, and the channel to the scheduler.
    socket: int
    line: int
    scheduler_pid: int
    #: Name of the scheduler in the store's row of the leader; "" if none else can lead.
    replica: str = ""


class MessageChannel:
    """One end of a pair of sockets that keep message boundaries.

    A message is dropped when the socket's buffer is full, so no process ever waits for the other one.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    @classmethod
    def pair(cls) -> tuple[MessageChannel, MessageChannel]:
        """Both ends of a new channel."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    @classmethod
    def inherited(cls, number: int) -> MessageChannel:
        """The end of a channel that was inherited as a file descriptor."""
        return cls(socket.socket(fileno=number))

    def fileno(self) -> int:
        """The file descriptor, for event loops and child processes."""
        return self._sock.fileno()

    def send(self, message: bytes) -> bool:
        """Send a message; False if it was dropped. Thread-safe."""
        try:
            self._sock.send(message)
        except OSError:  # the buffer is full, or the other end is closed
            return False
        return True

    def received(self) -> Iterator[bytes]:
        """The messages that have arrived, at most `MOST`.

        Raises:
            EOFError: the other end is closed.
        """
        for _ in range(MOST):
            try:
                message = self._sock.recv(MOST_BYTES)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                raise EOFError
            yield message

    def close(self) -> None:
        """Close this end."""
        self._sock.close()
