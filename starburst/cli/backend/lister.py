"""Lists the jobs of the home on this machine from the file of its store, without SQLAlchemy."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from starburst.app.config.home import Home
from starburst.cli.backend.notes import note_if_no_leader
from starburst.store.databases.sqlite_reader import SqliteReader
from starburst.store.listings import job_rows, plain_sql
from starburst.store.listings.row_types import JobRow


@dataclass(frozen=True, slots=True)
class FileLister:
    """Answers from the file."""

    home: Home
    reader: SqliteReader
    poll_s: float = 0.3

    def now(self) -> float:
        with self.reader.read() as ask:
            return plain_sql.pace(ask).scheduler_time(time.time())

    def note_if_down(self) -> None:
        note_if_no_leader(self.home, self.home.scheduler())

    def jobs(
        self,
        *,
        phases: Collection[str] | None = None,
        user: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[JobRow]:
        with self.reader.read() as ask:
            return job_rows.jobs(ask, phases=phases, user=user, ids=ids)
