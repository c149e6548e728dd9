"""The decision log as an outbox: what a step decided is stored with its state, and told from there in order.

Nothing is written for the bus but how far a broker was told. So a decision can be neither told before it is
stored nor stored and never told, and a broker that is away costs only rows that are kept anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select

from starburst.bus.messages import DecisionKeys, JobKeys, Message, Topics, encode
from starburst.core.parts.fleet import InstanceRecord
from starburst.domain.job import is_over
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.listings import queries
from starburst.store.listings.queries import JobRow
from starburst.store.rows import chunks
from starburst.store.store import ENDED_JOBS, Store

#: Rows of the log, or jobs to clear, taken at a time.
BATCH = 200
#: Wall seconds between looks at a log that has nothing new.
POLL_S = 0.2
#: The fact that a broker was told.
FACT = "bus"
#: Wall seconds between looks for jobs that are long over.
CLEAR_S = 60.0


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far somebody was told: the log up to `seq`; and jobs that ended up to then are cleared."""

    seq: int = 0
    ended_at: float = 0.0
    job_id: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages in the order they are to be told, and how far one is then."""

    messages: Sequence[Message]
    cursor: Cursor


class Outbox:
    """A reader of the log, over a connection of its own. Its calls wait for the disk: use a thread."""

    def __init__(
        self, store: Store, topics: Topics, *, decision: DecisionKeys, job: JobKeys, keep_s: float
    ) -> None:
        """`keep_s`: scheduler seconds after its end for which a job's state is retained."""
        self._store = store
        self._topics = topics
        self._decision = decision
        self._job = job
        self._keep_s = keep_s

    def cursor(self) -> Cursor:
        """How far the broker was told."""
        told: dict[str, Any] = self._store.fact(FACT) or {}
        return Cursor(**told)

    def settle(self, cursor: Cursor) -> None:
        """The broker has taken everything up to there."""
        fact = {"seq": cursor.seq, "ended_at": cursor.ended_at, "job_id": cursor.job_id}
        self._store.set_fact(FACT, fact)

    def after(self, cursor: Cursor) -> Batch | None:
        """The next decisions, then the states of the jobs they touched; None if there are none."""
        rows = queries.decisions(self._store, after_seq=cursor.seq, limit=BATCH)
        if not rows:
            return None
        bills = self._bills(row.subject for row in rows)
        messages = []
        first = rows[0].seq
        if first > cursor.seq + 1:
            missing = {"missing_from": cursor.seq + 1, "missing_to": first - 1, "goes_on_with": first}
            messages.append(Message(self._topics.gap, encode(missing)))
        touched: dict[str, None] = {}
        for row in rows:
            machine = row.subject in bills
            topic = self._topics.instance_events if machine else self._topics.job_events
            messages.append(Message(topic(row.subject), encode(self._decision(row))))
            # What becomes of a machine changes its jobs, too: their phase, and what they are billed.
            touched |= dict.fromkeys(bills[row.subject] if machine else [row.subject])
        messages += self._states(list(touched))
        return Batch(messages, replace(cursor, seq=rows[-1].seq))

    def long_over(self, cursor: Cursor) -> Batch | None:
        """The next jobs that are long over, whose retained states go; None if there are none."""
        c = t.jobs.c
        later = (c.ended_at > cursor.ended_at) | ((c.ended_at == cursor.ended_at) & (c.id > cursor.job_id))
        over = c.phase.in_(ENDED_JOBS) & (c.ended_at < self._now() - self._keep_s)
        chosen = select(c.ended_at, c.id).where(over, later).order_by(c.ended_at, c.id).limit(BATCH)
        with self._store.read() as conn:
            rows = conn.execute(chosen).all()
        if not rows:
            return None
        messages = [Message(self._topics.job_state(row.id), b"", retain=True) for row in rows]
        return Batch(messages, replace(cursor, ended_at=rows[-1].ended_at, job_id=rows[-1].id))

    def _states(self, job_ids: list[str]) -> list[Message]:
        before = self._now() - self._keep_s
        return [self._state(row, before) for row in queries.jobs(self._store, ids=job_ids)]

    def _state(self, row: JobRow, before: float) -> Message:
        long_over = is_over(row.phase) and row.ended_at is not None and row.ended_at < before
        payload = b"" if long_over else encode(self._job(row))
        return Message(self._topics.job_state(row.id), payload, retain=True)

    def _bills(self, subjects: Iterable[str]) -> dict[str, list[str]]:
        """Those subjects that are machines, each with the jobs that share its bill."""
        columns = t.instances.c
        found: dict[str, list[str]] = {}
        with self._store.read() as conn:
            for names in chunks(list(dict.fromkeys(subjects))):
                for name, text in conn.execute(
                    select(columns.id, columns.record).where(columns.id.in_(names))
                ):
                    found[name] = codec.decode(InstanceRecord, text).billed_to
        return found

    def _now(self) -> float:
        return queries.pace(self._store).scheduler_time(time.time())


async def follow(outbox: Outbox, cursor: Cursor) -> AsyncGenerator[Batch, None]:
    """Everything from there on, for ever. Who comes back for more has dealt with what it was given.

    Nobody is waited for and nothing is kept for anybody: each listener has a cursor, and the log is there.
    """
    clear_at = 0.0
    while True:
        batch = await asyncio.to_thread(outbox.after, cursor)
        if batch is None and time.monotonic() >= clear_at:
            batch = await asyncio.to_thread(outbox.long_over, cursor)
            if batch is None:
                clear_at = time.monotonic() + CLEAR_S
        if batch is None:
            await asyncio.sleep(POLL_S)
        else:
            cursor = batch.cursor
            yield batch
