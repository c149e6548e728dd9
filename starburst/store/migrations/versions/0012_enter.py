"""Requests have a new word, "enter", which an older scheduler does not know; no table changes."""

from __future__ import annotations

revision = "0012"
down_revision = "0010"


def upgrade() -> None:
    """Change nothing: the number keeps older versions from the store."""


def downgrade() -> None:
    """Change nothing."""
