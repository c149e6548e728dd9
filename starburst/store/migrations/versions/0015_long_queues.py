"""Indexes by which a page of a million jobs costs what a page of a thousand does; counters by queue."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0012"

facts = sa.table("facts", sa.column("key"), sa.column("body"))


def upgrade() -> None:
    """Make the indexes, of which counts by phase and queue read one alone, and split the counters."""
    op.drop_index("ix_jobs_phase_queue", "jobs")
    op.create_index("ix_jobs_phase_queue", "jobs", ["phase", "queue", "site"])
    op.create_index("ix_jobs_phase_deadline", "jobs", ["phase", "deadline", "seq"])
    op.create_index("ix_jobs_seq", "jobs", ["seq"])
    op.create_index("ix_jobs_queue_seq", "jobs", ["queue", "seq"])
    tallies = _document("tallies")
    if "waits" in tallies:
        _put("waits", tallies.pop("waits"))
        op.execute(sa.update(facts).where(facts.c.key == "tallies").values(body=json.dumps(tallies)))
    _put("spent", _document("spent"))
    op.execute(sa.delete(facts).where(facts.c.key == "spent"))


def _document(key: str) -> dict[str, Any]:
    body = op.get_bind().scalar(sa.select(facts.c.body).where(facts.c.key == key))
    found: dict[str, Any] = {} if body is None else json.loads(body)
    return found


def _put(name: str, by_queue: dict[str, Any]) -> None:
    rows = [{"key": f"{name}/{queue}", "body": json.dumps(it)} for queue, it in by_queue.items()]
    if rows:
        op.bulk_insert(facts, rows)
