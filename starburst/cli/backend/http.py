"""The backend of a remote Starburst: its HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from starburst.app.errors import UserError
from starburst.app.jobs.job_keys import Keys
from starburst.app.jobs.serializers import InstanceRow
from starburst.app.logs.sites import LogPart
from starburst.app.reading.sources import ManifestText
from starburst.app.times import iso
from starburst.client import Client, RefusedError, StarburstError, UnreachableError
from starburst.client.connection import AWAY
from starburst.domain.job import JobEdit
from starburst.domain.money import Money
from starburst.store.listings.costs import CostRow
from starburst.store.listings.row_types import DecisionRow, JobRow


@contextmanager
def http_backend(server: str, *, insecure: bool = False) -> Iterator[HttpBackend]:
    """The backend of a server. STARBURST_TOKEN is the token; `insecure` allows sending it unencrypted.

    Raises:
        UserError: the server is unreachable or refuses a request.
    """
    try:
        with Client(server, insecure=insecure) as client:
            yield HttpBackend(client)
    except StarburstError as error:
        raise UserError(str(error)) from None


@dataclass(frozen=True, slots=True)
class HttpBackend:
    """Answers by requests to a server."""

    client: Client
    poll_s: float = 1.0

    def is_away(self, error: Exception) -> bool:
        busy = isinstance(error, RefusedError) and error.status in (429, *AWAY)
        return busy or isinstance(error, UnreachableError)

    def now(self) -> float:
        return _at(self.client.summary()["now"]) or 0.0

    def note_if_down(self) -> None:
        """A server that answers has a scheduler."""

    def jobs(
        self,
        *,
        phases: Collection[str] | None = None,
        user: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[JobRow]:
        return [_job(keys) for keys in self.client.jobs(phases=phases or (), user=user, ids=ids)]

    def job(self, text: str) -> JobRow:
        try:
            return _job(self.client.job(text))
        except RefusedError as error:
            raise UserError(str(error)) from None

    def named(self, names: Sequence[str]) -> list[JobRow]:
        return [_job(keys) for keys in self.client.named(names)]

    def explain(self, row: JobRow) -> Keys:
        return {key: value for key, value in self.client.explain(row.id).items() if key != "id"}

    def decisions(
        self, subject: str | None = None, *, after_seq: int = 0, last: int | None = None
    ) -> list[DecisionRow]:
        return [_decision(keys) for keys in self.client.events(subject, after=after_seq, last=last)]

    def instances(self, *, include_ended: bool = False) -> list[InstanceRow]:
        return [_instance(keys) for keys in self.client.instances(include_ended=include_ended)]

    def cost(self, by: str) -> list[CostRow]:
        return [
            CostRow(
                keys[by], _micro(keys["cost_usd"]), _micro(keys["running_usd"]), _maybe(keys["cluster_usd"])
            )
            for keys in self.client.cost(by)
        ]

    def caps(self) -> list[Keys]:
        return self.client.caps()

    def nodes(self) -> list[Keys]:
        return self.client.nodes()

    def queues(self) -> list[Keys]:
        return self.client.queues()

    def cron_jobs(self) -> list[Keys]:
        return self.client.cron_jobs()

    def cron_job(self, name: str) -> Keys:
        return self.client.cron_job(name)

    def steer_cron_job(self, how: str, name: str) -> Keys:
        return self.client.steer_cron_job(how, name)

    def log(
        self,
        row: JobRow,
        part: LogPart,
        write: Callable[[str], None],
        *,
        follow: bool,
        note: Callable[[str], None],
    ) -> bool:
        found = False
        try:
            texts = self.client.logs(
                row.id,
                follow=follow,
                attempt=part.attempt,
                rank=part.rank,
                since=iso(part.since),
                timestamps=part.timestamps,
                note=note,
            )
            for text in texts:
                write(text)
                found = True
        except RefusedError as error:
            raise UserError(str(error)) from None
        return found

    def submit(
        self,
        sources: Sequence[ManifestText],
        *,
        dry_run: bool,
        hold: bool = False,
        allow_unsatisfiable: bool = False,
    ) -> list[Keys]:
        problems = [source.problem for source in sources if source.problem]
        if problems:
            raise UserError("\n".join(problems))
        return self.client.submit_files(
            [(source.name, source.text) for source in sources],
            dry_run=dry_run,
            hold=hold,
            allow_unsatisfiable=allow_unsatisfiable,
        )

    def cancel(self, names: Sequence[str], *, now: bool = False) -> list[JobRow]:
        return self._steer("cancel?now=true" if now else "cancel", names)

    def hold(self, names: Sequence[str]) -> list[JobRow]:
        return self._steer("hold", names)

    def release(self, names: Sequence[str]) -> list[JobRow]:
        return self._steer("release", names)

    def requeue(self, names: Sequence[str]) -> list[JobRow]:
        return self._steer("requeue", names)

    def edit(self, names: Sequence[str], edit: JobEdit) -> list[JobRow]:
        return self._steer(f"edit?{urlencode(edit.changes)}", names)

    def _steer(self, how: str, names: Sequence[str]) -> list[JobRow]:
        return [_job(keys) for keys in self.client.steer(how, names)]


def _job(keys: Mapping[str, Any]) -> JobRow:
    return JobRow(
        id=keys["id"],
        name=keys["name"],
        user=keys["user"],
        queue=keys["queue"],
        need=keys["need"],
        phase=keys["phase"],
        submitted_at=_at(keys["submitted_at"]) or 0.0,
        site=keys["site"],
        runs_on=keys["runs_on"],
        attempt=keys["attempt"],
        deadline=_at(keys["leaves_at"]),
        started_at=_at(keys["started_at"]),
        ended_at=_at(keys["ended_at"]),
        exit_code=keys["exit_code"],
        message=keys["message"],
        cloud_micro_usd=_micro(keys["cloud_cost_usd"]),
    )


def _decision(keys: Mapping[str, Any]) -> DecisionRow:
    at = _at(keys["at"]) or 0.0
    subject, event, kind = keys["subject"], keys["event"], keys["decision"]
    return DecisionRow(keys["seq"], at, subject, event, kind, keys["reason"], keys["numbers"])


def _instance(keys: Mapping[str, Any]) -> InstanceRow:
    return InstanceRow(
        id=keys["id"],
        phase=keys["phase"],
        offer=keys["offer"],
        nodes=keys.get("nodes", 1),
        nodes_lost=keys.get("nodes_lost", 0),
        jobs=tuple(keys["jobs"]),
        rate=Money.of(keys["usd_per_hour"]),
        price_known=keys["price_known"],
        spot=keys["spot"],
        preempted=keys["preempted"],
        requested_at=_at(keys["requested_at"]),
        launched_at=_at(keys["launched_at"]),
        ended_at=_at(keys["ended_at"]),
        billed_s=keys["billed_s"],
        cost=Money.of(keys["cost_usd"]),
        cost_at_most=Money.of(keys["cost_at_most_usd"]),
    )


def _at(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def _maybe(dollars: float | None) -> int | None:
    return None if dollars is None else _micro(dollars)


def _micro(dollars: float) -> int:
    return Money.of(dollars).micro_usd
