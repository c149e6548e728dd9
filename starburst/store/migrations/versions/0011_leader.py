"""The row of the scheduler that leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0009"


def upgrade() -> None:
    """Make the table, without a row: the first scheduler to start takes the lead."""
    op.create_table(
        "leader",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("home", sa.Text, nullable=False),
        sa.Column("renews", sa.Integer, nullable=False),
        sa.Column("drain", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
    )
