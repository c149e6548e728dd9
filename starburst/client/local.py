"""A Python client of a home on this machine: `from starburst import LocalClient`. It needs no server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.app.jobs import submitting
from starburst.app.jobs.job_keys import job_keys
from starburst.app.leadership.status import scheduler_of
from starburst.app.logs.job_log import read_log
from starburst.app.logs.sites import LogPart, LogPosition
from starburst.app.reading.sources import ManifestText
from starburst.client.base import BaseClient
from starburst.client.connection import NotFoundError, RefusedError, UnreachableError
from starburst.client.job_access import JsonRow
from starburst.domain.job import OWNER, is_over
from starburst.store.errors import DamagedError, JobNotFoundError, StoreError, UnusableError
from starburst.store.listings import pages, queries
from starburst.store.quota import QuotaError
from starburst.store.store import Store

T = TypeVar("T")


class LocalClient(BaseClient):
    """A client of the store of a home; close it, or use it as a context manager.

    What it asks for waits in the store until the scheduler runs. Its errors are those of `Client`.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        *,
        poll_s: float = 0.3,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """The default home is that of the commands: STARBURST_HOME, or ~/.starburst. `poll_s`: wall seconds.

        Raises:
            RefusedError: the home cannot be used.
            UnreachableError: its store cannot be opened.
        """
        self._sleep = sleep
        self._poll_s = poll_s
        # A thread of its own, for a notebook has an asyncio loop in the thread that asks.
        self._thread = ThreadPoolExecutor(1, "starburst-store")
        self._home = Home(Path(home)) if home else Home.default()
        #: Identity of the store that is open.
        self._place: object = None
        self._store = self._answer(self._open)

    def _open(self) -> Store:
        self._home.make()
        place = _place_of(self._home)
        store = Store.open(self._home.store)
        self._place = place
        return store

    def close(self) -> None:
        """Close the store."""
        self._thread.submit(self._store.close).result()
        self._thread.shutdown()

    def __enter__(self) -> LocalClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit_files(self, files: Iterable[tuple[str, str]], **asked: Any) -> list[JsonRow]:
        sources = [ManifestText(name, text) for name, text in files]

        def submit() -> list[JsonRow]:
            found = submitting.read_sources(self._store, sources, submitting.this_user(), submitter=OWNER)
            return list(submitting.submit(self._store, found, **asked))

        return self._ask(submit)

    def why_nothing_starts(self) -> str:
        if self._ask(lambda: scheduler_of(self._home, self._store)) is None:
            return f"no starburst runs in {self._home.root}; start it with: starburst up"
        return ""

    def jobs_by_id(self, ids: Iterable[str]) -> list[JsonRow]:
        wanted = list(ids)
        return self._ask(lambda: [job_keys(row) for row in queries.jobs(self._store, ids=wanted)])

    def named(self, names: Iterable[str]) -> list[JsonRow]:
        wanted = list(names)
        return self._ask(lambda: [job_keys(row) for row in pages.named(self._store, wanted)])

    def cancel(self, job: str, *, now: bool = False) -> JsonRow:
        def cancel() -> JsonRow:
            row = queries.job(self._store, job)
            submitting.cancel(self._store, [row], now=now, by=submitting.this_user())
            return job_keys(row)

        return self._ask(cancel)

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        attempt: int | None = None,
        rank: int | None = None,
        since: str | None = None,
    ) -> Iterator[str]:
        begin = None if since is None else datetime.fromisoformat(since).timestamp()
        part, position = LogPart(attempt, rank, begin), LogPosition()
        while True:
            over, texts = self._ask(lambda: self._new_log(job, part, position, follow=follow))
            yield from texts
            if over or not follow:
                return
            self._sleep(self._poll_s)

    def _new_log(
        self, job: str, part: LogPart, position: LogPosition, *, follow: bool
    ) -> tuple[bool, list[str]]:
        """Whether the job is over, and what of its log is behind the position."""
        row = queries.job(
            self._store, job
        )  # asked before reading, so that nothing written before the end is missed
        texts = list[str]()

        async def keep(text: str) -> None:
            texts.append(text)

        reading = read_log(
            self._store, self._home, row.id, part, keep, follow=follow, once=True, position=position
        )
        asyncio.run(reading)
        return is_over(row.phase), texts

    def _ask(self, question: Callable[[], T]) -> T:
        """The answer of the store that the home has now, in its thread: a restore or a move may have put
        another one in the place of that which is open, where no scheduler would see what is submitted.
        """

        def of_present_store() -> T:
            if self._place != _place_of(self._home):
                before, self._store = self._store, self._open()
                before.close()
            return question()

        return self._answer(of_present_store)

    def _answer(self, question: Callable[[], T]) -> T:
        try:
            return self._thread.submit(question).result()
        except JobNotFoundError as error:
            raise NotFoundError(404, str(error)) from None
        except QuotaError as error:
            raise RefusedError(403, str(error)) from None
        except (UnusableError, DamagedError, SQLAlchemyError) as error:
            raise UnreachableError(str(getattr(error, "orig", None) or error)) from None
        except (UserError, StoreError) as error:
            raise RefusedError(400, str(error)) from None


def _place_of(home: Home) -> object:
    """Identity of a home's store: its URL, or its file; None while there is none that can be looked at."""
    if isinstance(home.store, str):
        return home.store
    try:
        found = home.database.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
