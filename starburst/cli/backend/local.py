"""The backend of the home on this machine: its store, whether the scheduler runs or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from starburst.app.config.home import Home
from starburst.app.jobs.cron_jobs import STEER, cron_job_keys
from starburst.app.jobs.job_keys import Keys, explanation_keys
from starburst.app.jobs.serializers import InstanceRow, instance_rows, node_keys
from starburst.app.logs.job_log import read_log
from starburst.app.logs.sites import LogPart
from starburst.app.reading.sources import ManifestText
from starburst.cli.backend.notes import note_if_down, now_of
from starburst.domain.job import OWNER, JobEdit
from starburst.store import cron_jobs
from starburst.store.errors import UnusableError
from starburst.store.listings import pages, queries
from starburst.store.listings.costs import CostRow, costs
from starburst.store.listings.row_types import DecisionRow, JobRow
from starburst.store.store import Store


@dataclass(frozen=True, slots=True)
class LocalBackend:
    """Answers from the store. Large modules are imported on demand."""

    home: Home
    store: Store
    poll_s: float = 0.3

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, UnusableError)

    def now(self) -> float:
        return now_of(self.store)

    def note_if_down(self) -> None:
        note_if_down(self.store)

    def jobs(
        self,
        *,
        phases: Collection[str] | None = None,
        user: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[JobRow]:
        return queries.jobs(self.store, phases=phases, user=user, ids=ids)

    def job(self, text: str) -> JobRow:
        return queries.job(self.store, text)

    def named(self, names: Sequence[str]) -> list[JobRow]:
        return pages.named(self.store, names)

    def explain(self, row: JobRow) -> Keys:
        from starburst.app.jobs.snapshot_cache import SnapshotCache  # noqa: PLC0415 - the whole scheduler

        return explanation_keys(SnapshotCache(self.store).explanation(row))

    def decisions(
        self, subject: str | None = None, *, after_seq: int = 0, last: int | None = None
    ) -> list[DecisionRow]:
        return queries.decisions(self.store, subject, after_seq=after_seq, last=last)

    def instances(self, *, include_ended: bool = False) -> list[InstanceRow]:
        return instance_rows(self.store, self.now(), include_ended=include_ended)

    def cost(self, by: str) -> list[CostRow]:
        return costs(self.store, by, self.now())

    def caps(self) -> list[Keys]:
        from starburst.app.jobs.caps_view import cap_rows  # noqa: PLC0415
        from starburst.app.wiring.stored import stored_config  # noqa: PLC0415 - the whole scheduler

        return cap_rows(self.store, stored_config(self.store).settings(), self.now())

    def nodes(self) -> list[Keys]:
        from starburst.app.wiring.stored import live_core  # noqa: PLC0415 - the whole scheduler

        capacity = live_core(self.store, waiting=False).state.capacity
        return [node_keys(node, capacity.free(node.name)) for node in capacity.nodes]

    def queues(self) -> list[Keys]:
        from starburst.app.jobs.queue_rows import queue_rows  # noqa: PLC0415 - reads the config

        return queue_rows(self.store)

    def cron_jobs(self) -> list[Keys]:
        return [cron_job_keys(self.store, one) for one in cron_jobs.every(self.store)]

    def cron_job(self, name: str) -> Keys:
        return cron_job_keys(self.store, cron_jobs.find(self.store, name))

    def steer_cron_job(self, how: str, name: str) -> Keys:
        one = cron_jobs.find(self.store, name)
        before = cron_job_keys(self.store, one)
        STEER[how](self.store, [one])
        return before

    def log(
        self,
        row: JobRow,
        part: LogPart,
        write: Callable[[str], None],
        *,
        follow: bool,
        note: Callable[[str], None],
    ) -> bool:
        async def hand_on(text: str) -> None:
            write(text)

        return asyncio.run(read_log(self.store, self.home, row.id, part, hand_on, follow=follow, note=note))

    def submit(
        self,
        sources: Sequence[ManifestText],
        *,
        dry_run: bool,
        hold: bool = False,
        allow_unsatisfiable: bool = False,
    ) -> list[Keys]:
        from starburst.app.jobs import submitting  # noqa: PLC0415 - reads manifests, which few commands do

        found = submitting.read_sources(self.store, sources, submitting.this_user(), submitter=OWNER)
        found = submitting.held(found) if hold else found
        if dry_run:
            return submitting.dry_run(self.store, found)
        return submitting.submit(self.store, found, allow_unsatisfiable=allow_unsatisfiable)

    def cancel(self, names: Sequence[str], *, now: bool = False) -> list[JobRow]:
        from starburst.app.jobs import submitting  # noqa: PLC0415

        rows = self.named(names)
        submitting.cancel(self.store, rows, now=now, by=submitting.this_user())
        return rows

    def hold(self, names: Sequence[str]) -> list[JobRow]:
        from starburst.app.jobs import submitting  # noqa: PLC0415

        rows = self.named(names)
        submitting.hold(self.store, rows, by=submitting.this_user())
        return rows

    def release(self, names: Sequence[str]) -> list[JobRow]:
        from starburst.app.jobs import submitting  # noqa: PLC0415

        rows = self.named(names)
        submitting.release(self.store, rows, by=submitting.this_user())
        return rows

    def requeue(self, names: Sequence[str]) -> list[JobRow]:
        from starburst.app.jobs import submitting  # noqa: PLC0415

        rows = self.named(names)
        submitting.requeue(self.store, rows, by=submitting.this_user())
        return rows

    def edit(self, names: Sequence[str], edit: JobEdit) -> list[JobRow]:
        from starburst.app.jobs import submitting  # noqa: PLC0415

        rows = self.named(names)
        submitting.edit(self.store, rows, edit, admin=True)
        return rows
