"""A pool of worker processes that parse untrusted manifests, apart from this process's memory and time."""

from __future__ import annotations

import atexit
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
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
#: Longest time from the end of a worker's pipe to that of its process, wall seconds.
END_S = 5.0
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


class _EndedError(Exception):
    """A worker has ended in place of an answer, or had ended before."""


class _KilledError(Exception):
    """Somebody else ended a worker: it may have been idle, and the request is not at fault."""


class WorkerPool:
    """Workers start on demand, and end with this process. Thread-safe."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._free = BoundedSemaphore(WORKERS)
        self._idle: list[_Worker] = []

    def read(self, what: ManifestTexts | FoundObject, gone: Callable[[], bool] = lambda: False) -> ReadAnswer:
        """Parse as `requests.read` does; stops when `gone()` becomes true.

        Raises:
            OSError: the kernel ends workers, as memory is short.
        """
        question = (b"t" if isinstance(what, ManifestTexts) else b"f") + codec.encode(what).encode()
        with self._free:
            for next_worker in (self._idle_or_new, _Worker):
                with suppress(_KilledError):
                    return self._answer(next_worker(), question, gone)
        raise OSError(errno.ENOMEM, "what reads manifests was ended twice")

    def _idle_or_new(self) -> _Worker:
        try:
            return self._idle.pop()
        except IndexError:
            return _Worker()

    def _answer(self, worker: _Worker, question: bytes, gone: Callable[[], bool]) -> ReadAnswer:
        try:
            body = worker.ask(question, time.monotonic() + self._limit_s, gone)
            answer = codec.decode(ReadAnswer, body.decode())
        except (_EndedError, _LostError, OSError, StoreError) as error:
            killed = isinstance(error, _EndedError) and worker.was_killed()
            worker.end()
            if killed:
                raise _KilledError from None
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
            _LostError: time is up, or the client is gone.
            _EndedError: the worker ended.
        """
        try:
            send(self._questions, question)
        except BrokenPipeError:
            raise _EndedError from None
        (size,) = HEAD.unpack(self._bytes(HEAD.size, until, gone))
        if size > MOST_ANSWER:
            raise _LostError
        return self._bytes(size, until, gone)

    def was_killed(self) -> bool:
        """Whether somebody else killed the worker, which has ended; its own limits end it otherwise."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_S) == -signal.SIGKILL
        return False

    def end(self) -> None:
        """Kill the worker."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        for pipe in (self._questions, self._process.stdout):
            with suppress(OSError):  # a question that nobody has read
                pipe.close()

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
                raise _EndedError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
