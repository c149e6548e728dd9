"""CronJobs: what is submitted at each tick of a schedule."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0005"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "cron_jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("last_tick", sa.Double),
        sa.Column("jobs", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("ix_cron_jobs_name", "cron_jobs", ["name", "user"])
