"""The first schema."""

from __future__ import annotations

import json
import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make every table, and give this Starburst its id."""
    _jobs()
    _instances()
    _requests()
    _logs()
    _actions()
    facts = op.create_table(
        "facts",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.bulk_insert(facts, [{"key": "controller", "body": json.dumps(secrets.token_hex(4))}])


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("need", sa.Text, nullable=False),
        sa.Column("submitted_at", sa.Double, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("site", sa.Text),
        sa.Column("runs_on", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("deadline", sa.Double),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("exit_code", sa.Integer),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("cloud_micro_usd", sa.BigInteger, nullable=False),
        sa.Column("open_bills", sa.Integer, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("ix_jobs_phase", "jobs", ["phase", "open_bills"])
    op.create_index("ix_jobs_submitted", "jobs", ["submitted_at", "seq"])
    op.create_index("ix_jobs_name", "jobs", ["name", "id"])


def _instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("offer_name", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("requested_at", sa.Double, nullable=False),
        sa.Column("launched_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("micro_usd", sa.BigInteger, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("ix_instances_phase", "instances", ["phase"])


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("seq", SERIAL, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("need", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.UniqueConstraint("kind", "job_id", name="uq_requests_kind_job_id"),
        sqlite_autoincrement=True,
    )


def _logs() -> None:
    op.create_table(
        "events",
        sa.Column("seq", SERIAL, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "decisions",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("numbers", sa.Text, nullable=False),
    )
    op.create_index("ix_decisions_subject", "decisions", ["subject", "seq"])


def _actions() -> None:
    op.create_table(
        "actions",
        sa.Column("seq", SERIAL, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("done_at", sa.Double),
        sa.UniqueConstraint("key", name="uq_actions_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_actions_done_at", "actions", ["done_at"])
