"""The tables. Records are JSON text; values that listings show or filter by have columns of their own."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

#: Revision of the newest migration.
HEAD = "0020"

#: A 64-bit autoincrement key; SQLite autoincrements INTEGER columns only, which have 64 bits.
Serial = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()

_IN_LINE, _OBSTRUCTED = text("shape IS NOT NULL"), text("obstructed IS NOT NULL")

#: Jobs that the scheduler has taken up. Times are scheduler seconds, amounts micro-dollars.
jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("need", Text, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("phase", Text, nullable=False),
    Column("site", Text),
    Column("runs_on", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("deadline", Double),  # null is infinite
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("exit_code", Integer),
    Column("message", Text, nullable=False),
    Column("cloud_micro_usd", BigInteger, nullable=False),
    Column("open_bills", Integer, nullable=False),
    Column("workload", Text, nullable=False),
    Column("notes", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("shape", Text),  # a hash, of jobs in the cluster's queue only; else null
    Column("order_key", Double),
    Column("obstructed", Boolean),  # true: it should have left for the cloud and cannot; else null
    Index("ix_jobs_phase", "phase", "open_bills"),
    Index("ix_jobs_phase_user", "phase", "user"),
    Index("ix_jobs_phase_queue", "phase", "queue", "site"),
    Index("ix_jobs_phase_deadline", "phase", "deadline", "seq"),
    Index("ix_jobs_submitted", "submitted_at", "seq"),
    Index("ix_jobs_name", "name", "id"),
    Index("ix_jobs_seq", "seq"),
    Index("ix_jobs_queue_seq", "queue", "seq"),
    Index("ix_jobs_line", "shape", "order_key", "seq", sqlite_where=_IN_LINE, postgresql_where=_IN_LINE),
    Index(
        "ix_jobs_obstructed", "queue", "obstructed", sqlite_where=_OBSTRUCTED, postgresql_where=_OBSTRUCTED
    ),
)

#: Rented instances, ended ones too.
instances = Table(
    "instances",
    metadata,
    Column("id", Text, primary_key=True),
    Column("offer_name", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("requested_at", Double, nullable=False),
    Column("launched_at", Double),
    Column("ended_at", Double),
    Column("micro_usd", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
    Index("ix_instances_phase", "phase"),
    Index("ix_instances_ended", "ended_at", "id"),
)

#: Requests that no step has taken up yet: "submit", "cancel", "cancel-now", "hold", "release", "requeue",
#: "edit" and "enter".
requests = Table(
    "requests",
    metadata,
    Column("seq", Serial, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("need", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", Double, nullable=False),  # wall seconds
    UniqueConstraint("kind", "job_id", name="uq_requests_kind_job_id"),
    sqlite_autoincrement=True,  # numbers are never reused
)

#: Job arrays with jobs that no step has taken up yet; see `store.arrays`.
arrays = Table(
    "arrays",
    metadata,
    Column("seq", Serial, primary_key=True),
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("need", Text, nullable=False),
    Column("at_once", Integer),  # null is no limit
    Column("first_index", Integer, nullable=False),
    Column("last_index", Integer, nullable=False),
    Column("jobs_left", Integer, nullable=False),
    Column("after_request", BigInteger, nullable=False),  # the newest request when it was stored
    Column("body", Text, nullable=False),
    Column("created_at", Double, nullable=False),  # wall seconds
    UniqueConstraint("id", name="uq_arrays_id"),
    sqlite_autoincrement=True,  # numbers are never reused
)

#: The scheduler's input log.
events = Table(
    "events",
    metadata,
    Column("seq", Serial, primary_key=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)

#: The decision log; the core numbers it.
decisions = Table(
    "decisions",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("subject", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("numbers", Text, nullable=False),
    Index("ix_decisions_subject", "subject", "seq"),
)

#: Actions, in order; pending until `done_at` is set.
actions = Table(
    "actions",
    metadata,
    Column("seq", Serial, primary_key=True),
    Column("key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("done_at", Double),
    UniqueConstraint("key", name="uq_actions_key"),
    Index("ix_actions_done_at", "done_at"),
    sqlite_autoincrement=True,
)

#: Small documents: "facts", "nodes" and "offers" of the core; "controller", a random id; "clock";
#: "tallies", "steps", "waits/QUEUE" and "spent/QUEUE", monotonic counters; "speeds", the throughput table of
#: jobs that share instances; "accuracy/USER", what the user's estimates of run times are worth.
facts = Table(
    "facts",
    metadata,
    Column("key", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

#: Prefix of the keys of what users' estimates of run times are worth.
ACCURACY = "accuracy/"

#: Tokens of the HTTP API. Times are wall seconds.
tokens = Table(
    "tokens",
    metadata,
    Column("name", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("queues", Text),  # null is all
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),  # null is never
    Column("last_used_at", Double),
    Column("kubernetes", Text),  # rights of its jobs in a cluster; null is the default rights
    UniqueConstraint("hash", name="uq_tokens_hash"),
)

#: CronJobs. Times are wall seconds.
cron_jobs = Table(
    "cron_jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("last_tick", Double),  # null: none was submitted yet
    Column("jobs", Text, nullable=False),  # ids of jobs that had not ended when it was last looked at
    Column("message", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("ix_cron_jobs_name", "name", "user"),
)

#: Which scheduler leads: one row, see `store.leader`.
leader = Table(
    "leader",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("home", Text, nullable=False),
    Column("renews", Integer, nullable=False),
    Column("drain", BigInteger, nullable=False),
    Column("changed_at", Double, nullable=False),  # epoch seconds of the store's own clock
)

#: Jobs that ended longer ago than `home.keep`: what bills, past jobs and prerequisites need of them.
history = Table(
    "history",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("site", Text),
    Column("submitted_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("gpus", Integer, nullable=False),
    Column("cpus", Double, nullable=False),
    Column("memory_gib", Double, nullable=False),
    Column("cloud_micro_usd", BigInteger, nullable=False),
    Column("estimate_s", Double),  # the user's; NULL also of what was rolled up before it was kept
)

#: Instances that ended as long ago and were billed.
past_instances = Table(
    "past_instances",
    metadata,
    Column("id", Text, primary_key=True),
    Column("offer_name", Text, nullable=False),
    Column("launched_at", Double, nullable=False),
    Column("ended_at", Double, nullable=False),
    Column("micro_usd", BigInteger, nullable=False),
)

#: The last write of each connection to a PostgreSQL server: tells whether a write whose answer was lost took
#: effect. Empty in SQLite.
writers = Table(
    "writers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("at", Double, nullable=False),  # wall seconds
)
