"""Queued jobs that should have left for the cloud and cannot, in an index: every scrape counts them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

jobs = sa.table("jobs", *map(sa.column, ("phase", "record", "obstructed")))


def upgrade() -> None:
    """Add the column and its index, and fill it for the jobs in the queue."""
    op.add_column("jobs", sa.Column("obstructed", sa.Boolean))
    obstructed = jobs.c.record.contains('"obstacle":{') & ~jobs.c.record.contains('"confined":"')
    op.execute(sa.update(jobs).where(jobs.c.phase == "queued", obstructed).values(obstructed=sa.true()))
    condition = sa.text("obstructed IS NOT NULL")
    op.create_index(
        "ix_jobs_obstructed",
        "jobs",
        ["queue", "obstructed"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
