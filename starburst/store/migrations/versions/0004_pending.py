"""Counts of the jobs that wait, by user and by queue, are asked for at each submission."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the indexes."""
    op.create_index("ix_jobs_phase_user", "jobs", ["phase", "user"])
    op.create_index("ix_jobs_phase_queue", "jobs", ["phase", "queue"])
