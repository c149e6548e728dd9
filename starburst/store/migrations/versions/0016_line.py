"""Where a queued job stands among those of its shape, in an index by which its place is counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from starburst.core.model.jobs import JobRecord
from starburst.store import codec
from starburst.store.rows import place_in_line

revision = "0016"
down_revision = "0015"

jobs = sa.table("jobs", *map(sa.column, ("id", "phase", "record", "shape", "order_key")))
#: Jobs per statement.
SOME = 500


def upgrade() -> None:
    """Add the columns and their index, and fill them for the jobs in the queue."""
    op.add_column("jobs", sa.Column("shape", sa.Text))
    op.add_column("jobs", sa.Column("order_key", sa.Double))
    bind = op.get_bind()
    ids = list(bind.scalars(sa.select(jobs.c.id).where(jobs.c.phase == "queued")))
    for first in range(0, len(ids), SOME):
        those = sa.select(jobs.c.id, jobs.c.record).where(jobs.c.id.in_(ids[first : first + SOME]))
        for job_id, body in bind.execute(those).all():
            places = place_in_line(codec.decode(JobRecord, body))
            op.execute(sa.update(jobs).where(jobs.c.id == job_id).values(places))
    condition = sa.text("shape IS NOT NULL")
    op.create_index(
        "ix_jobs_line",
        "jobs",
        ["shape", "order_key", "seq"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
