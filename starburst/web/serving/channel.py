"""Whole messages between the scheduler and the process of its API. Neither ever waits for the other."""

from __future__ import annotations

import socket
from collections.abc import Iterator

#: Bytes of a message at most, and messages that are taken at a time.
MOST_BYTES = 65_536
MOST = 200


class MessageChannel:
    """One end. The kernel holds what the other end has not taken; what is too much for it is dropped."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    @classmethod
    def pair(cls) -> tuple[MessageChannel, MessageChannel]:
        """Both ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    @classmethod
    def inherited(cls, number: int) -> MessageChannel:
        """The end that another process has left under this number."""
        return cls(socket.socket(fileno=number))

    def fileno(self) -> int:
        """For whoever waits until there is something to hear, or leaves it to another process."""
        return self._sock.fileno()

    def say(self, message: bytes) -> bool:
        """Whether it is on its way; any thread may say something."""
        try:
            self._sock.send(message)
        except OSError:  # the other end is behind, or gone
            return False
        return True

    def heard(self) -> Iterator[bytes]:
        """What has come, or some of it.

        Raises:
            EOFError: the other end is gone.
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
        """Hang up."""
        self._sock.close()
