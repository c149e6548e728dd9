"""A Python client of the HTTP API: `from starburst import Client`. Answers have the keys of docs/cli.md."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from starburst.client.base import BaseClient
from starburst.client.connection import RefusedError, ServerConnection
from starburst.client.job_access import JsonRow

#: Rows per page, and ids per request.
PAGE = 1000
IDS = 100
#: What is never repeated: the first one may have stopped a run, and the next one would stop the run after it.
REQUEUE = "requeue"


class Client(BaseClient):
    """A client of one server; close it, or use it as a context manager.

    Idempotent requests are repeated with exponential backoff while the server is unreachable or busy. Other
    requests are repeated only if they certainly had no effect.
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
        """Defaults: STARBURST_SERVER or this machine, and STARBURST_TOKEN or no token.

        `insecure`, or STARBURST_INSECURE=1, allows a token to be sent to another machine over plain http.

        Raises:
            StarburstError: the server is not a URL, or the token would be sent unencrypted.
        """
        self._sleep = sleep
        self._connection = ServerConnection(
            server, token, timeout_s=timeout_s, tries=tries, sleep=sleep, insecure=insecure
        )
        self.server = self._connection.server

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

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
        allow_unsatisfiable: bool = False,
    ) -> list[JsonRow]:
        """Submit all jobs of a manifest, or none if one is invalid.

        A Path or a text of one line names a file; a longer text is YAML; a mapping or a sequence of
        mappings are manifests. `user` sets the owner of the jobs; only an admin may set it.
        `allow_unsatisfiable` takes jobs that no node and no offer could ever hold.
        """
        asked = {
            "dry_run": dry_run,
            "hold": hold,
            "user": user,
            "allow_unsatisfiable": allow_unsatisfiable,
        }
        if isinstance(manifest, Path) or (isinstance(manifest, str) and "\n" not in manifest):
            text = Path(manifest).read_text("utf-8")
            return self.submit_files([(str(manifest), text)], **asked)
        kind = "application/yaml" if isinstance(manifest, str) else "application/json"
        body = manifest if isinstance(manifest, str) else json.dumps(manifest)
        return self._submit(body, kind, asked)

    def submit_files(self, files: Iterable[tuple[str, str]], **asked: Any) -> list[JsonRow]:
        """As `submit`, of several YAML texts, each with the name that errors use."""
        body = {"files": [{"name": name, "text": text} for name, text in files]}
        return self._submit(json.dumps(body), "application/json", asked)

    def jobs(
        self,
        *,
        phases: Iterable[str] = (),
        user: str | None = None,
        queues: Iterable[str] = (),
        ids: Iterable[str] | None = None,
    ) -> list[JsonRow]:
        """Jobs in order of arrival."""
        if ids is not None:
            return [row for part in _parts(ids, IDS) for row in self._get("/jobs", id=part)]
        chosen = {"phase": list(phases), "queue": list(queues), "user": user}
        return self._pages("/jobs", "id", chosen)

    def jobs_by_id(self, ids: Iterable[str]) -> list[JsonRow]:
        return self.jobs(ids=ids)

    def named(self, names: Iterable[str]) -> list[JsonRow]:
        """For each name the job that `job` finds, or all jobs of the array with that name."""
        return [row for part in _parts(names, IDS) for row in self._get("/jobs", name=part)]

    def job(self, job: str) -> JsonRow:
        """A job by id, name or unique prefix, with its decisions."""
        return self._one(f"/jobs/{_quoted(job)}")

    def explain(self, job: str) -> JsonRow:
        """The state of a job and its reason."""
        return self._one(f"/jobs/{_quoted(job)}/explain")

    def cancel(self, job: str, *, now: bool = False) -> JsonRow:
        """Cancel a job, without a grace if `now` (admins only); the job as it was before."""
        return self._steer(job, "cancel?now=true" if now else "cancel")

    def hold(self, job: str) -> JsonRow:
        """Keep a pending job out of the queue; the job as it was before."""
        return self._steer(job, "hold")

    def release(self, job: str) -> JsonRow:
        """Let a held job into the queue; the job as it was before."""
        return self._steer(job, "release")

    def requeue(self, job: str) -> JsonRow:
        """Stop the run of a job, which then queues again; the job as it was before."""
        return self._steer(job, REQUEUE)

    def edit(
        self,
        job: str,
        *,
        priority: int | None = None,
        max_wait_s: float | None = None,
        runtime_estimate_s: float | None = None,
    ) -> JsonRow:
        """Change a job that waits; the job as it was before."""
        changes = {"priority": priority, "max_wait_s": max_wait_s, "runtime_estimate_s": runtime_estimate_s}
        return self._steer(job, f"edit?{urlencode(_given(changes))}")

    def steer(self, how: str, names: Iterable[str]) -> list[JsonRow]:
        """Cancel, hold, release, requeue or edit (`how`) jobs and arrays; the jobs as they were before.

        Up to a thousand names are one request, which succeeds or fails as a whole.
        """
        rows: list[JsonRow] = []
        for part in _parts(names, PAGE):
            again = how != REQUEUE
            rows += self._connection.json("POST", f"/jobs/{how}", again=again, json={"names": part})
        return rows

    def cron_jobs(self) -> list[JsonRow]:
        """CronJobs in order of creation."""
        return self._get("/cronjobs")

    def cron_job(self, cron_job: str) -> JsonRow:
        """A CronJob by id, name or the beginning of its id."""
        return self._one(f"/cronjobs/{_quoted(cron_job)}")

    def steer_cron_job(self, how: str, cron_job: str) -> JsonRow:
        """Cancel, hold or release (`how`) a CronJob; as it was before."""
        row: JsonRow = self._connection.json("POST", f"/cronjobs/{_quoted(cron_job)}/{how}", again=True)
        return row

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        attempt: int | None = None,
        rank: int | None = None,
        since: str | None = None,
        timestamps: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> Iterator[str]:
        """The log of a job in pieces; with `follow` until the job ends.

        `since` (RFC 3339) leaves out what was written earlier; `timestamps` puts its time before each line.

        An existing log yields at least one piece, possibly empty. A broken connection is resumed at its
        position, with `follow` without limit. `note` receives remarks about the log.
        """
        asked = _given({"attempt": attempt, "rank": rank, "follow": str(follow).lower(), "since": since})
        asked |= {"timestamps": "true"} if timestamps else {}
        path, silent = f"/jobs/{_quoted(job)}/logs", True
        first = self._connection.tries
        tries = math.inf if follow else first
        for event in self._connection.events(path, asked, first=first, tries=tries, away=note):
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

    def instances(self, *, include_ended: bool = False) -> list[JsonRow]:
        """The rented machines."""
        return self._get("/instances", all=str(include_ended).lower())

    def cost(self, by: str = "user") -> list[JsonRow]:
        """The cloud's bill by user, queue, day, month, job or offer."""
        return self._get("/cost", by=by)

    def caps(self) -> list[JsonRow]:
        """The spending caps and their present state."""
        return self._get("/caps")

    def events(self, subject: str | None = None, *, after: int = 0, last: int | None = None) -> list[JsonRow]:
        """Decisions after a row, or the last ones; about one job or machine if `subject` is its id."""
        if last is not None and last <= PAGE:
            return self._get("/events", subject=subject, after=after, limit=last, newest="true")
        rows = self._pages("/events", "seq", {"subject": subject}, after)
        return rows if last is None else rows[-last:]

    def nodes(self) -> list[JsonRow]:
        """The nodes of the cluster and their free capacity."""
        return self._get("/nodes")

    def queues(self) -> list[JsonRow]:
        """The queues and the numbers of their jobs by phase."""
        return self._get("/queues")

    def offers(self) -> list[JsonRow]:
        """The offers of the cloud."""
        return self._get("/offers")

    def summary(self) -> JsonRow:
        """Counts of jobs and machines, and the present spending rate."""
        return self._one("/summary")

    def watch(self, after: int | None = None) -> Iterator[JsonRow]:
        """Decisions as they are made, from now on or after a row; resumes broken connections without loss.

        A server that does not answer at first is tried as often as by any call.
        """
        since = "" if after is None else str(after)
        for event in self._connection.events("/watch", {}, since, first=self._connection.tries):
            if event.data:
                yield json.loads(event.data)

    def _pages(
        self, path: str, key: str, chosen: Mapping[str, Any], after: str | int | None = None
    ) -> list[JsonRow]:
        rows: list[JsonRow] = []
        while True:
            page = self._get(path, **chosen, after=after, limit=PAGE)
            rows += page
            if len(page) < PAGE:
                return rows
            after = page[-1][key]

    def _get(self, path: str, **asked: Any) -> list[JsonRow]:
        rows: list[JsonRow] = self._connection.json("GET", path, again=True, params=_given(asked))
        return rows

    def _one(self, path: str) -> JsonRow:
        row: JsonRow = self._connection.json("GET", path, again=True)
        return row

    def _submit(self, body: str, kind: str, asked: Mapping[str, Any]) -> list[JsonRow]:
        params = {name: value for name, value in asked.items() if value}
        more = {"params": params, "content": body.encode(), "headers": {"Content-Type": kind}}
        rows: list[JsonRow] = self._connection.json("POST", "/jobs", again=bool(asked.get("dry_run")), **more)
        return rows

    def _steer(self, job: str, how: str) -> JsonRow:
        row: JsonRow = self._connection.json("POST", f"/jobs/{_quoted(job)}/{how}", again=how != REQUEUE)
        return row


def _given(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}


def _parts(names: Iterable[str], most: int) -> Iterator[list[str]]:
    left = iter(names)
    while part := list(islice(left, most)):
        yield part


def _quoted(job: str) -> str:
    return quote(job, safe="")
