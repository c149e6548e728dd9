"""The HTTP API from Python: `from starburst import Client`. Answers have the keys of docs/cli.md."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from starburst.hosts import is_loopback
from starburst.sse import Event, events

SERVER = "http://127.0.0.1:8585"
#: Phases that a job does not leave.
OVER = frozenset({"succeeded", "failed", "cancelled"})
#: Rows of a page, and ids of a request.
PAGE = 1000
IDS = 100
#: Longest pause between two tries, wall seconds.
LONGEST_PAUSE_S = 5.0
#: A watch that is silent for so long has broken off; the server speaks every 15 s.
SILENCE_S = 60.0
#: What a gateway says when the server is not there for a moment.
AWAY = (502, 503, 504)

Row = dict[str, Any]


class StarburstError(Exception):
    """Something did not work, in one line for each problem."""


class RefusedError(StarburstError):
    """The server has answered, and said no."""

    def __init__(self, status: int, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s


class NotFoundError(RefusedError):
    """There is no such job, or it is not for this token to see."""


class UnreachableError(StarburstError):
    """The server does not answer."""


class Client:
    """A Starburst behind its HTTP API; to be closed, or used as a context.

    What may be asked twice without harm is tried again when the server is away or busy; the rest only when it
    was certainly not taken.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        tries: int = 4,
        sleep: Callable[[float], None] = time.sleep,
        insecure: bool = False,
    ) -> None:
        """Without arguments: STARBURST_SERVER, else this machine; STARBURST_TOKEN, else none.

        `insecure`, or STARBURST_INSECURE=1: a token may be sent to another machine over plain http.

        Raises:
            StarburstError: the server is no address, or the token would be read on its way.
        """
        self.server = (server or os.environ.get("STARBURST_SERVER") or SERVER).rstrip("/")
        token = token or os.environ.get("STARBURST_TOKEN")
        here = _is_here(self.server)
        if token and not (here or insecure or os.environ.get("STARBURST_INSECURE") == "1"):
            _refuse_to_tell(self.server)
        self._http = httpx.Client(
            base_url=f"{self.server}/api/v1",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout_s,
            trust_env=not here,  # no proxy stands between this machine and itself
        )
        self._tries = tries
        self._sleep = sleep

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        manifest: Path | str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        dry_run: bool = False,
        hold: bool = False,
        user: str = "",
    ) -> list[Row]:
        """Submit all jobs of a manifest or, if one is bad, none.

        A Path, or text of one line, names a file; longer text is YAML; a mapping, or several, are manifests.
        `user`: whose they are; only an admin may say so.
        """
        asked = {"dry_run": dry_run, "hold": hold, "user": user}
        if isinstance(manifest, Path) or (isinstance(manifest, str) and "\n" not in manifest):
            text = Path(manifest).read_text("utf-8")
            return self.submit_files([(str(manifest), text)], **asked)
        kind = "application/yaml" if isinstance(manifest, str) else "application/json"
        body = manifest if isinstance(manifest, str) else json.dumps(manifest)
        return self._submit(body, kind, asked)

    def submit_files(self, files: Iterable[tuple[str, str]], **asked: Any) -> list[Row]:
        """The same of several texts of YAML, each after the name that errors shall call it."""
        body = {"files": [{"name": name, "text": text} for name, text in files]}
        return self._submit(json.dumps(body), "application/json", asked)

    def jobs(
        self,
        *,
        phases: Iterable[str] = (),
        user: str | None = None,
        queues: Iterable[str] = (),
        ids: Iterable[str] | None = None,
    ) -> list[Row]:
        """Jobs in order of arrival."""
        if ids is not None:
            return [row for part in _parts(ids, IDS) for row in self._get("/jobs", id=part)]
        chosen = {"phase": list(phases), "queue": list(queues), "user": user}
        return self._pages("/jobs", "id", chosen)

    def named(self, names: Iterable[str]) -> list[Row]:
        """For each name one job, as `job` finds it, or all jobs of the array that is called so."""
        return [row for part in _parts(names, IDS) for row in self._get("/jobs", name=part)]

    def job(self, job: str) -> Row:
        """One job, by id, name or the beginning of one, and its story."""
        return self._one(f"/jobs/{_quoted(job)}")

    def explain(self, job: str) -> Row:
        """Where a job stands and why."""
        return self._one(f"/jobs/{_quoted(job)}/explain")

    def cancel(self, job: str, *, now: bool = False) -> Row:
        """Cancel a job, `now`, which is for admins, without a grace: how it stood before."""
        return self._steer(job, "cancel?now=true" if now else "cancel")

    def hold(self, job: str) -> Row:
        """Keep a job that waits out of the queue: how it stood before."""
        return self._steer(job, "hold")

    def release(self, job: str) -> Row:
        """Let a held job into the queue: how it stood before."""
        return self._steer(job, "release")

    def steer(self, how: str, names: Iterable[str]) -> list[Row]:
        """Cancel, hold or release (`how`) jobs and whole arrays, by name: how they stood before.

        Of a thousand names all or none.
        """
        rows: list[Row] = []
        for part in _parts(names, PAGE):
            rows += self._ask("POST", f"/jobs/{how}", again=True, json={"names": part}).json()
        return rows

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        attempt: int | None = None,
        rank: int | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> Iterator[str]:
        """What a job wrote, in pieces as they come, with `follow` until it is over.

        There is at least one piece, maybe an empty one, of a log that is there. After a cut it goes on where
        it was, as often as it takes with `follow`; `note` is told what is to be known beside the text.
        """
        asked = _given({"attempt": attempt, "rank": rank, "follow": str(follow).lower()})
        path, tries, silent = f"/jobs/{_quoted(job)}/logs", math.inf if follow else self._tries, True
        for event in self._events(path, asked, first=self._tries, tries=tries, away=note):
            data = json.loads(event.data) if event.data else {}
            if event.name == "log":
                silent = False
                yield data["text"]
            elif event.name == "note":
                note(data["text"])
            elif event.name == "error":
                raise RefusedError(400, data["error"])
            elif event.name == "end":
                if data["found"] and silent:
                    yield ""
                return

    def wait(self, ids: Iterable[str], *, timeout_s: float | None = None, poll_s: float = 1.0) -> list[Row]:
        """The jobs once they are all over, in the order of their ids.

        Raises:
            TimeoutError: that took longer than `timeout_s` wall seconds.
        """
        wanted = list(ids)
        over: dict[str, Row] = {}
        began = time.monotonic()
        while True:
            waiting = [job for job in wanted if job not in over]
            over |= {row["id"]: row for row in self.jobs(ids=waiting) if row["phase"] in OVER}
            if all(job in over for job in wanted):
                return [over[job] for job in wanted]
            if timeout_s is not None and time.monotonic() - began > timeout_s:
                left = [job for job in wanted if job not in over]
                raise TimeoutError(f"{len(left)} of {len(wanted)} jobs are not over, such as {left[0]}")
            self._sleep(poll_s)

    def instances(self, *, include_ended: bool = False) -> list[Row]:
        """The rented machines."""
        return self._get("/instances", all=str(include_ended).lower())

    def cost(self, by: str = "user") -> list[Row]:
        """The cloud's bill by user, queue, day, month, job or offer."""
        return self._get("/cost", by=by)

    def caps(self) -> list[Row]:
        """How the caps on spending stand."""
        return self._get("/caps")

    def events(self, subject: str | None = None, *, after: int = 0, last: int | None = None) -> list[Row]:
        """The decision log after a row, or its last rows; of one job or machine, by id, if one is given."""
        if last is not None and last <= PAGE:
            return self._get("/events", subject=subject, after=after, limit=last, newest="true")
        rows = self._pages("/events", "seq", {"subject": subject}, after)
        return rows if last is None else rows[-last:]

    def nodes(self) -> list[Row]:
        """The cluster's nodes and what is free on them."""
        return self._get("/nodes")

    def offers(self) -> list[Row]:
        """What the cloud sells."""
        return self._get("/offers")

    def summary(self) -> Row:
        """How things stand, in a few numbers."""
        return self._one("/summary")

    def watch(self, after: int | None = None) -> Iterator[Row]:
        """Decisions as they are made, from now on or after a row; comes back by itself, and misses none."""
        for event in self._events("/watch", {}, "" if after is None else str(after)):
            if event.data:
                yield json.loads(event.data)

    def _pages(
        self, path: str, key: str, chosen: Mapping[str, Any], after: str | int | None = None
    ) -> list[Row]:
        rows: list[Row] = []
        while True:
            page = self._get(path, **chosen, after=after, limit=PAGE)
            rows += page
            if len(page) < PAGE:
                return rows
            after = page[-1][key]

    def _get(self, path: str, **asked: Any) -> list[Row]:
        rows: list[Row] = self._ask("GET", path, again=True, params=_given(asked)).json()
        return rows

    def _one(self, path: str) -> Row:
        row: Row = self._ask("GET", path, again=True).json()
        return row

    def _submit(self, body: str, kind: str, asked: Mapping[str, Any]) -> list[Row]:
        params = {name: value for name, value in asked.items() if value}
        more = {"params": params, "content": body.encode(), "headers": {"Content-Type": kind}}
        rows: list[Row] = self._ask("POST", "/jobs", again=bool(asked.get("dry_run")), **more).json()
        return rows

    def _steer(self, job: str, how: str) -> Row:
        row: Row = self._ask("POST", f"/jobs/{_quoted(job)}/{how}", again=True).json()
        return row

    def _ask(self, method: str, path: str, *, again: bool, **more: Any) -> httpx.Response:
        """The answer; `again`: asking twice does no harm."""
        pause_s = 0.2
        for left in reversed(range(self._tries)):
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

    def _events(
        self,
        path: str,
        asked: Mapping[str, Any],
        last_id: str = "",
        *,
        first: float = math.inf,
        tries: float = math.inf,
        away: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Event]:
        """Server-sent events after an id; after each cut those behind the last one.

        It takes so many tries in a row, and for the `first` event; `away` is told when the server goes away.
        """
        pause_s, left, told = 0.0, first, False
        while True:
            try:
                with self._stream(path, asked, last_id) as answer:
                    for event in events(answer.iter_text()):
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
        StarburstError: it is no address.
    """
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise StarburstError(f"{server}: is no address of a server; write it like {SERVER}")
    return is_loopback(url.host)


def _refuse_to_tell(server: str) -> None:
    """Refuse to send a token where others can read it.

    Raises:
        StarburstError: it is so.
    """
    if httpx.URL(server).scheme != "https":
        raise StarburstError(
            f"{server}: the token would go there unencrypted; use https or, where nobody listens in, "
            "--insecure (STARBURST_INSECURE=1)"
        )


def _refusal(answer: httpx.Response) -> RefusedError | None:
    if answer.status_code < 300:
        return None
    try:
        text = str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        text = f"{answer.url.copy_with(path='/', query=None)} answers {answer.status_code}; is it Starburst?"
    after = answer.headers.get("retry-after", "")
    kind = NotFoundError if answer.status_code == 404 else RefusedError
    return kind(answer.status_code, text, float(after) if after.isdecimal() else None)


def _given(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}


def _parts(names: Iterable[str], most: int) -> Iterator[list[str]]:
    left = iter(names)
    while part := list(islice(left, most)):
        yield part


def _quoted(job: str) -> str:
    return quote(job, safe="")
