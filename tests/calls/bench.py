"""A client whose jobs run at once in this machine, as the embedded cluster would run them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from starburst.client.base import BaseClient
from starburst.client.connection import NotFoundError
from starburst.client.job_access import JsonRow
from tests.translator.kinds.running import run
from translator.intake.texts import read_firsts


class Bench(BaseClient):
    """Runs what is submitted; `logs_before` is printed in front of each log."""

    def __init__(self, where: Path) -> None:
        self._where, self._sleep = where, time.sleep
        self._pythons = Path(sys.executable).parent
        self.rows: dict[str, JsonRow] = {}
        self.texts: dict[str, str] = {}
        self.submitted: list[Any] = []
        self.asked_since: list[str | None] = []
        self.logs_before = ""

    def submit_files(self, files: Iterable[tuple[str, str]], **asked: Any) -> list[JsonRow]:
        ((source, text),) = files
        (item,) = read_firsts(text, source, suffix=lambda: f"a{len(self.rows)}")
        self.submitted.append(item)
        where = self._where / item.job.id
        where.mkdir()
        ended = run(item, where, PATH=f"{self._pythons}:/usr/bin:/bin")
        phase = "failed" if ended.returncode else "succeeded"
        self.texts[item.job.id] = ended.stdout + ended.stderr
        row = {
            "id": item.job.id,
            "name": item.job.name,
            "phase": phase,
            "ended_at": "2026-03-02T12:00:00+00:00",
        }
        self.rows[item.job.id] = {**row, "message": f"exit code {ended.returncode}", "notes": []}
        return [self.rows[item.job.id]]

    def jobs_by_id(self, ids: Iterable[str]) -> list[JsonRow]:
        return [self.rows[job] for job in ids if job in self.rows]

    def named(self, names: Iterable[str]) -> list[JsonRow]:
        wanted = list(names)
        found = [row for row in self.rows.values() if row["id"] in wanted or row["name"] in wanted]
        if not found:
            raise NotFoundError(404, f"there is no job {wanted[0]!r}")
        return found

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        attempt: int | None = None,
        rank: int | None = None,
        since: str | None = None,
    ) -> Iterator[str]:
        self.asked_since.append(since)
        text = self.logs_before + self.texts[job]
        yield from re.findall(r".*\n|.+", text)

    def cancel(self, job: str, *, now: bool = False) -> JsonRow:
        return self.rows[job]
