"""The last write of each connection to a PostgreSQL server; what is kept of old jobs and instances."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0011"


def upgrade() -> None:
    """Make the tables."""
    _history()
    op.create_table(
        "writers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )


def _history() -> None:
    op.create_table(
        "history",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("site", sa.Text),
        sa.Column("submitted_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("cpus", sa.Double, nullable=False),
        sa.Column("memory_gib", sa.Double, nullable=False),
        sa.Column("cloud_micro_usd", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "past_instances",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("offer_name", sa.Text, nullable=False),
        sa.Column("launched_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double, nullable=False),
        sa.Column("micro_usd", sa.BigInteger, nullable=False),
    )
