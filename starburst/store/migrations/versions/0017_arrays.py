"""Arrays as one row until their jobs are taken up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "arrays",
        sa.Column("seq", _SERIAL, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("need", sa.Text, nullable=False),
        sa.Column("at_once", sa.Integer),
        sa.Column("first_index", sa.Integer, nullable=False),
        sa.Column("last_index", sa.Integer, nullable=False),
        sa.Column("jobs_left", sa.Integer, nullable=False),
        sa.Column("after_request", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.UniqueConstraint("id", name="uq_arrays_id"),
        sqlite_autoincrement=True,
    )
