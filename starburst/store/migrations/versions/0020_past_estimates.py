"""What users estimated of jobs that are rolled up: simulations of the history schedule by it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add the column; of what was rolled up before, nothing is known."""
    op.add_column("history", sa.Column("estimate_s", sa.Double))
