"""What jobs of a token may in a Kubernetes cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; tokens from before have nothing more than everybody has."""
    op.add_column("tokens", sa.Column("kubernetes", sa.Text))
