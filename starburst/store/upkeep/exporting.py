"""Ended jobs as JSON: what `rollup.py` removes later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import and_, or_, select

from starburst.core.model.jobs import JobRecord
from starburst.domain.job import Workload
from starburst.store import codec
from starburst.store import schema as t
from starburst.store.store import ENDED_JOBS, Store

#: Jobs per transaction.
JOBS = 200


def ended_jobs(store: Store, before: float) -> Iterator[dict[str, Any]]:
    """Jobs that ended and were submitted before a scheduler time, in order of submission.

    Each has its columns, its record, workload and notes as the scheduler keeps them, and its decisions.
    """
    c, after = t.jobs.c, (float("-inf"), -1)
    while True:
        later = or_(c.submitted_at > after[0], and_(c.submitted_at == after[0], c.seq > after[1]))
        some = select(t.jobs).where(c.submitted_at < before, later).order_by(c.submitted_at, c.seq)
        with store.read() as conn:
            rows = conn.execute(some.limit(JOBS)).mappings().all()
            ids = [row["id"] for row in rows]
            log = select(t.decisions).where(t.decisions.c.subject.in_(ids)).order_by(t.decisions.c.seq)
            decisions: dict[str, list[dict[str, Any]]] = {}
            for row in conn.execute(log).mappings():
                one = {**row, "numbers": json.loads(row["numbers"])}
                decisions.setdefault(one.pop("subject"), []).append(one)
        if not rows:
            return
        after = rows[-1]["submitted_at"], rows[-1]["seq"]
        for row in rows:
            if row["phase"] in ENDED_JOBS:
                documents = {
                    "record": _in_full(JobRecord, row["record"]),
                    "workload": _in_full(Workload, row["workload"]),
                    "notes": json.loads(row["notes"]),
                }
                yield {**row, **documents, "decisions": decisions.get(row["id"], [])}


def _in_full(kind: type[object], text: str) -> object:
    """A stored document with the fields that have their default."""
    return json.loads(codec.encode(codec.decode(kind, text)))
