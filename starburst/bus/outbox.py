"""The decision log as a transactional outbox: a step stores its decisions with its state, in one transaction,
and they are published from the log in order.

The bus itself stores only a cursor, the position up to which the broker has acknowledged messages. A decision
is therefore never published before it is stored, a stored one is published at least once, and an unreachable
broker needs no storage beyond the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starburst.bus.messages import DecisionKeys, JobKeys, Message, Topics, encode
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.job import is_over
from starburst.store import codec
from starburst.store.listings import queries
from starburst.store.listings.row_types import JobRow
from starburst.store.statements import rows_with
from starburst.store.store import ENDED_JOBS, Store

#: Largest number of log rows, or of jobs to clear, per batch; a connection that fails costs one batch.
BATCH = 50
#: Wall seconds between polls of a log without new rows.
POLL_S = 0.2
#: Key of the fact that holds the broker's cursor.
FACT = "bus"
#: Wall seconds between searches for jobs whose retained state has expired.
CLEAR_S = 60.0


_LONG_OVER = f"""
SELECT ended_at, id FROM jobs
WHERE phase IN ({", ".join(f"'{phase}'" for phase in ENDED_JOBS)}) AND ended_at < :before
AND (ended_at > :ended_at OR (ended_at = :ended_at AND id > :job_id))
ORDER BY ended_at, id LIMIT :most
"""
_INSTANCES = "SELECT id, record FROM instances"


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position of a listener: decisions up to `seq` are published, and the retained states of jobs that ended
    up to (`ended_at`, `job_id`) are cleared.
    """

    seq: int = 0
    ended_at: float = 0.0
    job_id: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages in the order of publication, and the cursor after them."""

    messages: Sequence[Message]
    cursor: Cursor


class Outbox:
    """Turns the log into messages. Calls block on the disk: an event loop makes them in a thread."""

    def __init__(
        self, store: Store, topics: Topics, *, decision: DecisionKeys, job: JobKeys, keep_s: float
    ) -> None:
        """`keep_s` is the number of scheduler seconds for which an ended job's state stays retained."""
        self._store = store
        self._topics = topics
        self._decision = decision
        self._job = job
        self._keep_s = keep_s

    def cursor(self) -> Cursor:
        """The stored cursor of the broker."""
        told: dict[str, Any] = self._store.fact(FACT) or {}
        return Cursor(**told)

    def settle(self, cursor: Cursor) -> None:
        """Store the cursor up to which the broker has acknowledged all messages."""
        fact = {"seq": cursor.seq, "ended_at": cursor.ended_at, "job_id": cursor.job_id}
        self._store.set_fact(FACT, fact)

    def after(self, cursor: Cursor) -> Batch | None:
        """The next decisions, then the states of the jobs they touched; None if there are none."""
        rows = queries.decisions(self._store, after_seq=cursor.seq, limit=BATCH)
        if not rows:
            return None
        bills = self._bills(row.subject for row in rows)
        messages = []
        last = cursor.seq
        touched: dict[str, None] = {}
        for row in rows:
            if row.seq > last + 1:  # those of jobs and instances that ended long ago are pruned
                missing = {"missing_from": last + 1, "missing_to": row.seq - 1, "goes_on_with": row.seq}
                messages.append(Message(self._topics.gap, encode(missing)))
            last = row.seq
            machine = row.subject in bills
            topic = self._topics.instance_events if machine else self._topics.job_events
            messages.append(Message(topic(row.subject), encode(self._decision(row))))
            # A decision about an instance also changes its jobs: their phase, and their bills.
            touched |= dict.fromkeys(bills[row.subject] if machine else [row.subject])
        messages += self._states(list(touched))
        return Batch(messages, replace(cursor, seq=last))

    def long_over(self, cursor: Cursor) -> Batch | None:
        """Messages that clear the states of the next jobs that ended over `keep_s` ago; None if none did."""
        before = self._now() - self._keep_s
        values = {"ended_at": cursor.ended_at, "job_id": cursor.job_id, "before": before, "most": BATCH}
        rows = self._store.ask(_LONG_OVER, values)
        if not rows:
            return None
        messages = [Message(self._topics.job_state(job_id), b"", retain=True) for _, job_id in rows]
        ended_at, job_id = rows[-1]
        return Batch(messages, replace(cursor, ended_at=ended_at, job_id=job_id))

    def _states(self, job_ids: list[str]) -> list[Message]:
        before = self._now() - self._keep_s
        return [self._state(row, before) for row in queries.jobs(self._store, ids=job_ids)]

    def _state(self, row: JobRow, before: float) -> Message:
        long_over = is_over(row.phase) and row.ended_at is not None and row.ended_at < before
        payload = b"" if long_over else encode(self._job(row))
        return Message(self._topics.job_state(row.id), payload, retain=True)

    def _bills(self, subjects: Iterable[str]) -> dict[str, list[str]]:
        """The subjects that are instances, each with the jobs that share its bill."""
        found: dict[str, list[str]] = {}
        with self._store.read() as conn:
            for name, text in rows_with(conn, _INSTANCES, "id", list(dict.fromkeys(subjects))):
                found[name] = codec.decode(InstanceRecord, text).billed_to
        return found

    def _now(self) -> float:
        return queries.pace(self._store).scheduler_time(time.time())


async def follow(outbox: Outbox, cursor: Cursor) -> AsyncGenerator[Batch, None]:
    """Endless batches from a cursor on; a consumer that asks for the next one has processed the previous one.

    Listeners are independent: each has its own cursor, the log is the only buffer, and a slow listener does
    not delay the others.
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
