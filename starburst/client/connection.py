"""HTTP requests to a Starburst server, with retries and resumable event streams."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from starburst.client.sse import ServerEvent
from starburst.client.sse import events as parse
from starburst.hosts import is_loopback

SERVER = "http://127.0.0.1:8585"
#: Longest pause between two attempts, wall seconds.
LONGEST_PAUSE_S = 5.0
#: A watch without data for so many seconds is broken; the server sends a keepalive every 15 s.
SILENCE_S = 60.0
#: Statuses of a gateway or server that is temporarily unavailable.
AWAY = (502, 503, 504)


class StarburstError(Exception):
    """A request failed; one line per problem."""


class RefusedError(StarburstError):
    """The server refused the request."""

    def __init__(self, status: int, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s


class NotFoundError(RefusedError):
    """The job does not exist, or the token's scope does not include it."""


class UnreachableError(StarburstError):
    """The server does not answer."""


class ServerConnection:
    """The connections to one server.

    Idempotent requests are repeated with exponential backoff while the server is unreachable or busy. Other
    requests are repeated only if they certainly had no effect.
    """

    def __init__(
        self,
        server: str | None,
        token: str | None,
        *,
        timeout_s: float,
        tries: int,
        sleep: Callable[[float], None],
        insecure: bool,
    ) -> None:
        """The arguments are those of `Client`.

        Raises:
            StarburstError: the server is not a URL, or the token would be sent unencrypted or is none.
        """
        self.server = (server or os.environ.get("STARBURST_SERVER") or SERVER).rstrip("/")
        token = _plain(token or os.environ.get("STARBURST_TOKEN") or "")
        here = _is_here(self.server)
        if token and not (here or insecure or os.environ.get("STARBURST_INSECURE") == "1"):
            _require_tls(self.server)
        self._http = httpx.Client(
            base_url=f"{self.server}/api/v1",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout_s,
            trust_env=not here,  # proxies are not used for this machine
        )
        self.tries = tries
        self._sleep = sleep

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, method: str, path: str, *, again: bool, **more: Any) -> httpx.Response:
        """The answer to a request; `again`: the request is idempotent."""
        pause_s = 0.2
        for left in reversed(range(self.tries)):
            wait_s = pause_s
            try:
                answer = self._http.request(method, path, **more)
                error = _refusal(answer)
                if error is None:
                    return answer
                wait_s = error.retry_after_s or pause_s
                if not left or not (error.status == 429 or (again and error.status in AWAY)):
                    raise error
            except httpx.TransportError as problem:
                if not left or not (again or isinstance(problem, httpx.ConnectError)):
                    raise self._away(problem) from None
            self._sleep(min(LONGEST_PAUSE_S, wait_s))
            pause_s *= 2
        raise AssertionError("there is at least one try")

    def json(self, method: str, path: str, *, again: bool, **more: Any) -> Any:
        """The JSON of the answer to a request."""
        answer = self.ask(method, path, again=again, **more)
        try:
            return answer.json()
        except ValueError:
            raise StarburstError(_no_answer_of_ours(answer)) from None

    def events(
        self,
        path: str,
        asked: Mapping[str, Any],
        last_id: str = "",
        *,
        first: float = math.inf,
        tries: float = math.inf,
        away: Callable[[str], None] = lambda _: None,
    ) -> Iterator[ServerEvent]:
        """Server-sent events after an id; after a broken connection those after the last received one.

        `first` and `tries` limit consecutive attempts before the first event and after it. `away` is called
        when the server becomes unreachable.
        """
        pause_s, left, told = 0.0, first, False
        while True:
            try:
                with self._stream(path, asked, last_id) as answer:
                    for event in parse(answer.iter_text()):
                        pause_s, left, told = 0.0, tries, False
                        last_id = event.id or last_id
                        yield event
            except UnreachableError:
                if left <= 1:
                    raise
                if not told:
                    away(f"{self.server}: does not answer; going on when it does")
                    told = True
            except RefusedError as error:
                if left <= 1 or error.status not in (429, *AWAY):
                    raise
                pause_s = max(pause_s, error.retry_after_s or 0.0)
            left -= 1
            self._sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s + 0.1)

    @contextmanager
    def _stream(self, path: str, asked: Mapping[str, Any], last_id: str) -> Iterator[httpx.Response]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        limits = httpx.Timeout(self._http.timeout.connect, read=SILENCE_S)
        try:
            with self._http.stream("GET", path, params=asked, headers=headers, timeout=limits) as answer:
                if answer.status_code >= 400:
                    answer.read()
                error = _refusal(answer)
                if error is not None:
                    raise error
                yield answer
        except httpx.TransportError as problem:
            raise self._away(problem) from None

    def _away(self, problem: Exception) -> UnreachableError:
        why = str(problem) or type(problem).__name__
        return UnreachableError(f"{self.server}: does not answer ({why}); is starburst up running there?")


def _is_here(server: str) -> bool:
    """Whether a server is on this machine.

    Raises:
        StarburstError: the server is not a URL.
    """
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise StarburstError(f"{server}: is no address of a server; write it like {SERVER}")
    return is_loopback(url.host)


def _require_tls(server: str) -> None:
    """Refuse to send a token unencrypted.

    Raises:
        StarburstError: the server is not https.
    """
    if httpx.URL(server).scheme != "https":
        raise StarburstError(
            f"{server}: the token would go there unencrypted; use https or, where nobody listens in, "
            "--insecure (STARBURST_INSECURE=1)"
        )


def _plain(token: str) -> str:
    """A token without the white space around it, as files and variables of CI have it.

    Raises:
        StarburstError: no header can hold it; the message does not quote it.
    """
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise StarburstError("the token has characters that no token has; copy it anew, as it was made")
    return token


def _no_answer_of_ours(answer: httpx.Response) -> str:
    return f"{answer.url.copy_with(path='/', query=None)} answers {answer.status_code}; is it Starburst?"


def _refusal(answer: httpx.Response) -> RefusedError | None:
    if answer.status_code < 300:
        return None
    try:
        text = str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        text = _no_answer_of_ours(answer)
    after = answer.headers.get("retry-after", "")
    kind = NotFoundError if answer.status_code == 404 else RefusedError
    return kind(answer.status_code, text, float(after) if after.isdecimal() else None)
