"""Connections between the tasks of a gang: messages of JSON, from those who know the job's secret.

What is sent is not encrypted, as between the nodes of most clusters.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

#: The variable with the secret of the job.
SECRET = "STARBURST_GANG_SECRET"
#: The variable with the file that tells `starburst-step` of the tasks.
STATE = "STARBURST_GANG_STATE"
#: Seconds for a greeting.
GREETING_S = 10.0


class TaskLink:
    """Messages over a socket: a JSON object a line."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._reader = channel.makefile("rb")
        self._lock = threading.Lock()
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, **message: Any) -> None:
        """Send a message. Raises OSError."""
        with self._lock:
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next message; None once the other side is gone."""
        try:
            line = self._reader.readline()
            found = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        """End it, also where a thread reads."""
        with suppress(OSError):  # the other side was faster
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    @property
    def here(self) -> str:
        """The own address, as the other side has it."""
        return str(self._channel.getsockname()[0])

    @property
    def there(self) -> str:
        """The address of the other side."""
        return str(self._channel.getpeername()[0])


def proof(nonce: str) -> str:
    """What only a task of this job can answer."""
    return hmac.new(os.environ[SECRET].encode(), nonce.encode(), hashlib.sha256).hexdigest()


def connected(host: str, at: int, greeting: dict[str, Any]) -> TaskLink:
    """A connection on which this side has proved itself and greeted. Raises OSError."""
    channel = socket.create_connection((host, at), GREETING_S)
    link = TaskLink(channel)
    asked = link.receive()
    channel.settimeout(None)
    if asked is None:
        link.close()
        raise ConnectionError("the other side closed it")
    link.send(proof=proof(str(asked.get("nonce"))), **greeting)
    return link


def greeted(channel: socket.socket) -> tuple[TaskLink, dict[str, Any]] | None:
    """The connection and the greeting of one who knows the secret; None for others."""
    link, nonce = TaskLink(channel), secrets.token_hex(16)
    channel.settimeout(GREETING_S)
    try:
        link.send(nonce=nonce)
        greeting = link.receive() or {}
        channel.settimeout(None)
    except OSError:
        greeting = {}
    if hmac.compare_digest(str(greeting.get("proof", "")), proof(nonce)):
        return link, greeting
    link.close()
    return None


def listening(port: int = 0) -> socket.socket:
    """A socket that listens on all addresses; 0 is any port. Raises OSError."""
    family = socket.getaddrinfo(os.environ.get("MASTER_ADDR", "127.0.0.1"), None)[0][0]
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", port))
    server.listen(128)
    return server


def say(text: str) -> None:
    """A line for the log of this task."""
    sys.stderr.write(f"starburst: {text}\n")
