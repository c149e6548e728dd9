"""Reports the rate and progress of a job; one line in the job enables it:

    from starburst.iterator import watch

    for batch in watch(loader, total=epochs * len(loader)):
        ...

In a job of Starburst, STARBURST_REPORT names a local file, which is replaced a few times a minute by one line
of JSON, or a URL that receives the same: http:// or https:// (with the bearer token STARBURST_REPORT_TOKEN),
mqtt://user:password@host:port/topic or mqtts://. Without STARBURST_REPORT nothing is written, and the loop
has no overhead. This module imports the standard library only and may be copied to places without Starburst.

`python -m starburst.iterator --profile 60 train.py …` runs a program until its watched loop has run
for a minute after a warm-up, and writes its throughput on an otherwise idle machine to throughput.json.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Told = Mapping[str, object]

#: Environment variables: the URL and token of the report, and the duration and file of a profile.
REPORT, TOKEN = "STARBURST_REPORT", "STARBURST_REPORT_TOKEN"
PROFILE, PROFILE_OUT = "STARBURST_PROFILE", "STARBURST_PROFILE_OUT"
WINDOW_S = 10.0
#: Timeout of each answer of a listener, and of a report when the program ends or forks, seconds.
TIMEOUT_S, LAST_S = 3.0, 0.3
#: Longest pause after failures; the first is two windows long, and each next one twice as long.
MOST_PAUSE_S = 600.0
#: What a report may fail with. Whatever else is raised meanwhile is of the program's own signal handlers, by
#: which it is told to save its state.
FAILURES = (ArithmeticError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
#: Share of a profile that is not measured: caches fill and kernels are compiled.
WARM_UP = 0.1


def watch(iterable: Iterable[T], total: float | None = None, *, done: float = 0) -> Watched[T]:
    """Wrap an iterable and report its rate; the wrapper has all attributes of the iterable.

    `total` is the number of iterations of the whole job over all epochs; without it only the rate is
    reported. `done` is the number of iterations that a checkpoint contains.
    """
    kind = _Sized if hasattr(iterable, "__len__") else Watched
    return kind(iterable, total, done)


class Watched(Generic[T]):
    """An iterable that counts its items. It raises only exceptions of the iterable."""

    def __init__(self, iterable: Iterable[T], total: float | None = None, done: float = 0) -> None:
        self._iterable = iterable
        self._total = total
        self._done = done
        self._where = os.environ.get(REPORT) or None
        profile_s = _number(os.environ.get(PROFILE))
        self._profile = _Profile(profile_s) if profile_s else None
        self._since = math.inf
        self._done_then = done

    def __iter__(self) -> Iterator[T]:
        if self._profile is not None:
            return self._profile.through(self._iterable)
        return self._counted() if self._is_heard() else iter(self._iterable)

    def __getattr__(self, name: str) -> Any:
        if name == "_iterable":  # during copying or unpickling
            raise AttributeError(name)
        return getattr(self._iterable, name)

    def _is_heard(self) -> bool:
        """Whether reports are enabled. Imports happen now: an import in a thread could meet a fork."""
        try:
            if self._where is not None and _is_url(self._where):
                _line(self._where)
        except Exception:
            self._where = None
        return self._where is not None

    def _counted(self) -> Iterator[T]:
        clock = time.monotonic
        self._since = min(self._since, clock())
        due = self._since + WINDOW_S
        count = 0  # a local counter: an attribute takes three times as long
        try:
            for item in self._iterable:
                yield item
                count += 1  # a request for the next item ends the previous one
                if clock() >= due:
                    self._done, count = self._done + count, 0
                    due = self._tell(clock())
        finally:
            self._done = self._done + count  # not in place: it may be the caller's tensor

    def _tell(self, now: float) -> float:
        """Report the window that ends now, and set the end of the next one."""
        per_s = (self._done - self._done_then) / max(now - self._since, 1e-9)
        self._since, self._done_then = now, self._done
        try:
            if self._where is not None:
                _report(self._where, {"done": self._done, "total": self._total, "per_s": per_s})
        except FAILURES:  # such as a full disk: the job must not be disturbed, and the next may arrive
            pass
        return now + WINDOW_S


class _Sized(Watched[T]):
    """A wrapped iterable with a length."""

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]


class _Profile:
    """Measures one loop over as many epochs as needed."""

    def __init__(self, profile_s: float) -> None:
        self._profile_s = profile_s
        self._began = self._since = time.monotonic()
        self._counted = 0
        self._warm = False

    def through(self, iterable: Iterable[T]) -> Iterator[T]:
        """Run for the given time, write the rate, and end the program."""
        for item in iterable:
            yield item
            now = time.monotonic()
            self._counted += 1
            if not self._warm and now - self._began >= self._profile_s * WARM_UP:
                self._warm, self._since, self._counted = True, now, 0
            elif self._warm and now - self._since >= self._profile_s:
                self._write(now)
                raise SystemExit(0)
        self._write(time.monotonic())  # no further epoch may follow

    def _write(self, now: float) -> None:
        seconds = now - self._since
        measured = {
            "per_s": self._counted / max(seconds, 1e-9),
            "iterations": self._counted,
            "seconds": seconds,
        }
        _write(os.environ.get(PROFILE_OUT) or "throughput.json", measured)


def _report(where: str, told: Told) -> None:
    """Write to a file or hand over to a listener; never blocks the loop."""
    if _is_url(where):
        _line(where).put(told)
    else:
        _write(where, {**told, "at": time.time()})


def _is_url(where: str) -> bool:
    return where.partition("://")[0] in _SENDERS and "://" in where


def _line(where: str) -> _Line:
    """The sender of this process: a forked child inherits its parent's without the thread."""
    key = os.getpid(), where
    if key not in _lines:
        _lines[key] = _Line(where)
    return _lines[key]


class _Line:
    """Sends reports to one listener, from a thread that lives only while it sends.

    Between reports the process has no thread of ours: fork() beside threads is unsafe, and Python 3.12
    warns of it. The mailbox holds one report, so a slow listener gets the latest one.
    """

    def __init__(self, where: str) -> None:
        import atexit  # noqa: PLC0415 - only jobs with a listener need them
        import threading  # noqa: PLC0415

        self._send = _sender(where)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._told: Told | None = None
        self._sends = False
        self._failures = 0
        #: Monotonic seconds before which nothing is sent, after failures; infinite once the run is over.
        self._retry_at = -math.inf
        self._new_thread = partial(threading.Thread, target=self._run, name="starburst-report", daemon=True)
        self._thread = self._new_thread()
        atexit.register(self._wait)
        os.register_at_fork(before=self._wait)

    def put(self, told: Told) -> None:
        """Replace the pending report; never blocks."""
        with self._lock:
            self._told = told
            if self._sends or time.monotonic() < self._retry_at:
                return
            thread = self._new_thread()
            thread.start()
            self._thread, self._sends = thread, True

    def _run(self) -> None:
        """Send what is in the mailbox until it is empty or an attempt fails."""
        arrived = True
        while True:
            with self._lock:
                if self._told is None or not arrived:
                    self._sends = False
                    return
                told, self._told = self._told, None
            arrived = self._attempt(told)

    def _attempt(self, told: Told) -> bool:
        """Whether a report arrived; if not, a pause begins, twice as long each time."""
        try:
            self._send(told)
        except _OverError:
            self._retry_at = math.inf
            return False
        except Exception:
            self._failures += 1
            pause_s = min(MOST_PAUSE_S, WINDOW_S * 2 ** min(self._failures, 9))
            self._retry_at = time.monotonic() + pause_s
            return False
        self._failures = 0
        return True

    def _wait(self) -> None:
        """Before a fork and at exit: give a report that is being sent a short time to arrive."""
        if self._pid == os.getpid() and self._thread.ident is not None:
            self._thread.join(LAST_S)


_lines: dict[tuple[int, str], _Line] = {}


class _OverError(Exception):
    """The listener refuses further reports of this run."""


def _sender(where: str) -> Callable[[Told], None]:
    """The function that sends a report to a URL; it raises on failure."""
    from urllib.parse import urlsplit  # noqa: PLC0415

    url = urlsplit(where)
    return _SENDERS[url.scheme](url)


def _http(url: Any) -> Callable[[Told], None]:
    """HTTP PUT, as `starburst/web/routes/progress.py` expects it."""
    import json  # noqa: PLC0415
    from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415

    connection = HTTPSConnection if url.scheme == "https" else HTTPConnection
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers = {"Content-Type": "application/json", "User-Agent": "starburst-iterator"}
    if os.environ.get(TOKEN):
        headers["Authorization"] = f"Bearer {os.environ[TOKEN]}"

    def send(told: Told) -> None:
        line = connection(url.hostname, url.port, timeout=TIMEOUT_S)
        try:
            line.request("PUT", target, json.dumps({**told, **_rank()}, default=float), headers)
            status = line.getresponse().status
        finally:
            line.close()
        if status == 410:
            raise _OverError
        if status >= 300:
            raise ConnectionError(status)

    return send


def _mqtt(url: Any) -> Callable[[Told], None]:
    """Publish with QoS 1 by MQTT 3.1.1, which MQTT 5 brokers support too."""
    import json  # noqa: PLC0415
    import socket  # noqa: PLC0415
    import ssl  # noqa: PLC0415
    from urllib.parse import unquote  # noqa: PLC0415

    run = {"job": os.environ["STARBURST_JOB"], "attempt": int(os.environ["STARBURST_ATTEMPT"])}
    tls = ssl.create_default_context() if url.scheme == "mqtts" else None
    address = url.hostname or "localhost", url.port or (8883 if tls else 1883)
    topic = _text(unquote(url.path[1:]))
    login = [unquote(part) for part in (url.username, url.password) if part is not None]
    flags = 0x02 | (0x80, 0xC0)[len(login) - 1] if login else 0x02  # flags: clean session, user, password
    own = _text(f"starburst{os.urandom(7).hex()}")  # the longest id that every broker accepts
    hello = _text("MQTT") + bytes([4, flags, 0, 60]) + own + b"".join(map(_text, login))

    def send(told: Told) -> None:
        body = json.dumps({**run, **told, **_rank()}, default=float).encode()
        with socket.create_connection(address, TIMEOUT_S) as plain:
            line = plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0])
            with line:
                line.sendall(_packet(0x10, hello))
                if line.recv(4) != b"\x20\2\0\0":
                    raise ConnectionError("refused")
                line.sendall(_packet(0x32, topic + b"\0\1" + body))
                if line.recv(4) != b"\x40\2\0\1":
                    raise ConnectionError("not taken")
                line.sendall(b"\xe0\0")

    return send


_SENDERS: dict[str, Callable[[Any], Callable[[Told], None]]] = {
    "http": _http,
    "https": _http,
    "mqtt": _mqtt,
    "mqtts": _mqtt,
}


def _text(text: str) -> bytes:
    """An MQTT string: two bytes of length, then UTF-8."""
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _packet(kind: int, data: bytes) -> bytes:
    """An MQTT packet; its length is in groups of seven bits, lowest first."""
    left, length = len(data), bytearray()
    while not length or left:
        left, digit = divmod(left, 128)
        length.append(digit | (0x80 if left else 0))
    return bytes([kind]) + length + data


def _rank() -> dict[str, int]:
    """The rank of this task in its gang; {} if unknown."""
    rank = os.environ.get("STARBURST_RANK", "")
    return {"rank": int(rank)} if rank.isdecimal() else {}


def _write(path: str, data: Mapping[str, object]) -> None:
    """Replace a file atomically; processes of one job may do so concurrently.

    Counts may be of any type that is a number, such as those of numpy and torch.
    """
    import json  # noqa: PLC0415 - only jobs with a report need it

    staging = f"{path}.{os.getpid()}"
    with open(staging, "w", encoding="utf-8") as file:
        json.dump(data, file, default=float)
    os.replace(staging, path)


def _number(text: str | None) -> float:
    """Seconds; 0 if the text is not a number."""
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


def _main() -> None:
    import argparse  # noqa: PLC0415 - for the command alone
    import runpy  # noqa: PLC0415
    import sys  # noqa: PLC0415

    parser = argparse.ArgumentParser("python -m starburst.iterator", description="Measure a program.")
    parser.add_argument("--profile", type=float, metavar="SECONDS", default=60.0, help="how long [60]")
    parser.add_argument("--out", metavar="FILE", default="throughput.json", help="[throughput.json]")
    parser.add_argument("program", help="a Python file whose loop is in watch()")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    told = parser.parse_args()
    if told.profile <= 0:
        parser.error(f"--profile: {told.profile:g} must be more than 0 seconds")
    if not os.path.isfile(told.program):
        parser.error(f"{told.program}: there is no such file")
    os.environ[PROFILE], os.environ[PROFILE_OUT] = str(told.profile), os.path.abspath(told.out)
    sys.argv = [told.program, *told.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(told.program))
    runpy.run_path(told.program, run_name="__main__")


if __name__ == "__main__":
    _main()
