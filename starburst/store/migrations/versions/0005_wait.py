"""A job's record says why it waits in fields of their own, and has null where there is no reason.

Before, `wait` was a dictionary: {} without a wait, else the numbers of the wait (need, wait_s, rule,
runtime_s, estimated_by) and, of a job that should be in the cloud, what it lacks there ("lacks", and "capped"
if that is budget). Now `wait` holds the numbers or null, and `obstacle` the other two. `stop_why` and
`leaving` were "" where there is no reason.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

#: Rows that are read, and written, at a time.
BATCH = 1000

jobs = sa.table("jobs", sa.column("id", sa.Text), sa.column("record", sa.Text))


def upgrade() -> None:
    """Rewrite every record, in order of ids."""
    conn, last = op.get_bind(), ""
    some = sa.select(jobs.c.id, jobs.c.record).order_by(jobs.c.id).limit(BATCH)
    change = jobs.update().where(jobs.c.id == sa.bindparam("its_id")).values(record=sa.bindparam("text"))
    while rows := conn.execute(some.where(jobs.c.id > last)).all():
        conn.execute(change, [{"its_id": row.id, "text": upgraded(row.record)} for row in rows])
        last = rows[-1].id


def upgraded(text: str) -> str:
    """The record of a job in the shape of this version."""
    record: dict[str, Any] = json.loads(text)
    wait: dict[str, Any] = record.get("wait") or {}
    lacks, capped = wait.pop("lacks", None), wait.pop("capped", None)
    record["wait"] = wait if "wait_s" in wait else None
    record["obstacle"] = None if lacks is None else {"text": lacks}
    if capped is not None and capped["lacks"] == lacks:
        cost = "Infinity" if capped["cost"] is None else capped["cost"]
        record["obstacle"] = {"cap": capped["cap"], "until": capped["until"], "cost": cost, "text": lacks}
    for reason in ("stop_why", "leaving"):
        record[reason] = record.get(reason) or None
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))
