"""Has others' texts read by worker processes, so that no text takes the memory or the time of who asks."""

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

#: Workers at a time.
WORKERS = 2
#: Wall seconds for one question, on a machine where the worker's own limit, of processor time, takes long.
LIMIT_S = 60.0
#: Wall seconds between looks whether the asker is still there.
LOOK_S = 0.2
#: Bytes of an answer.
MOST_ANSWER = 256 * 1024 * 1024
#: Bytes of a question after which a worker is not asked again: it may have grown.
LARGE = 64 * 1024
#: Of our own environment, what Python needs.
ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "VIRTUAL_ENV")

TOO_MUCH = "takes too much time or memory to read; make it smaller, or split it up"
GONE = "nobody waits for the answer any more"


class _LostError(Exception):
    """A worker gave no answer."""


class WorkerPool:
    """Any thread may ask. Workers are started when they are needed, and end with this process."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._free = BoundedSemaphore(WORKERS)
        self._idle: list[_Worker] = []

    def read(self, what: ManifestTexts | FoundObject, gone: Callable[[], bool] = lambda: False) -> ReadAnswer:
        """As `reading.read`; given up when the asker is `gone`."""
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
        """End the workers that wait."""
        while self._idle:
            self._idle.pop().end()


@cache
def shared() -> WorkerPool:
    """The reader of this process."""
    reader = WorkerPool()
    atexit.register(reader.close)
    return reader


class _Worker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(  # a session of its own: Ctrl-C is for who started us
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
        """The answer to a question.

        Raises:
            _LostError: none came in time, or the asker is gone.
        """
        send(self._questions, question)
        (size,) = HEAD.unpack(self._bytes(HEAD.size, until, gone))
        if size > MOST_ANSWER:
            raise _LostError
        return self._bytes(size, until, gone)

    def end(self) -> None:
        """End it, whatever it does."""
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
