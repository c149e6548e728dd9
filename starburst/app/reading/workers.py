"""A pool of worker processes that parse untrusted manifests, apart from this process's memory and time."""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from threading import BoundedSemaphore
from typing import BinaryIO

from starburst.app.reading.frames import HEAD, send
from starburst.app.reading.requests import FoundObject, ManifestTexts, ReadAnswer
from starburst.store import codec
from starburst.store.errors import StoreError

#: Workers per process.
WORKERS = 2
#: Wall seconds per request, if the worker's CPU limit does not end it earlier.
LIMIT_S = 60.0
#: Wall seconds between two checks whether the client is still connected.
LOOK_S = 0.2
#: Bytes of the largest answer.
MOST_ANSWER = 256 * 1024 * 1024
#: Bytes of a request after which a worker is replaced: its heap may have grown.
LARGE = 64 * 1024
#: Environment variables that Python needs.
ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "VIRTUAL_ENV")

TOO_MUCH = "takes too much time or memory to read; make it smaller, or split it up"
GONE = "nobody waits for the answer any more"


class _LostError(Exception):
    """A worker gave no answer."""


class WorkerPool:
    """Workers start on demand, and end with this process. Thread-safe."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._free = BoundedSemaphore(WORKERS)
        self._idle: list[_Worker] = []

    def read(self, what: ManifestTexts | FoundObject, gone: Callable[[], bool] = lambda: False) -> ReadAnswer:
        """Parse as `requests.read` does; stops when `gone()` becomes true."""
        question = (b"t" if isinstance(what, ManifestTexts) else b"f") + codec.encode(what).encode()
        with self._free:
            worker = self._idle.pop() if self._idle else _Worker()
            try:
                body = worker.ask(question, time.monotonic() + self._limit_s, gone)
                answer = codec.decode(ReadAnswer, body.decode())
            except (_LostError, OSError, StoreError):
                worker.end()
                return ReadAnswer(problems=(GONE if gone() else TOO_MUCH,))
            except BaseException:
                worker.end()
                raise
            if len(question) > LARGE:
                worker.end()
            else:
                self._idle.append(worker)
            return answer

    def close(self) -> None:
        """End the idle workers."""
        while self._idle:
            self._idle.pop().end()


@cache
def shared() -> WorkerPool:
    """The pool of this process."""
    reader = WorkerPool()
    atexit.register(reader.close)
    return reader


class _Worker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(  # a session of its own: Ctrl-C is for the parent
            [sys.executable, "-m", "starburst.app.reading.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions: BinaryIO = self._process.stdin  # type: ignore[assignment]
        self._answers = self._process.stdout.fileno()

    def ask(self, question: bytes, until: float, gone: Callable[[], bool]) -> bytes:
        """The answer to a request.

        Raises:
            _LostError: time is up, the client is gone, or the worker ended.
        """
        send(self._questions, question)
        (size,) = HEAD.unpack(self._bytes(HEAD.size, until, gone))
        if size > MOST_ANSWER:
            raise _LostError
        return self._bytes(size, until, gone)

    def end(self) -> None:
        """Kill the worker."""
        self._process.kill()
        self._process.wait()
        self._questions.close()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _bytes(self, size: int, until: float, gone: Callable[[], bool]) -> bytes:
        parts, poll = list[bytes](), select.poll()
        poll.register(self._answers, select.POLLIN)
        while size:
            if gone() or time.monotonic() > until:
                raise _LostError
            if not poll.poll(LOOK_S * 1000):
                continue
            part = os.read(self._answers, min(size, 1 << 20))
            if not part:
                raise _LostError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
