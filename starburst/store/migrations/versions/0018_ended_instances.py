"""Instances by their end: charts and roll-ups read those of a day, of the many that a month of caps keeps."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Create the index."""
    op.create_index("ix_instances_ended", "instances", ["ended_at", "id"])
