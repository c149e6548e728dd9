"""What a command printed, as lines and as data, and the keys of its rows."""

from __future__ import annotations

import json

JOB_KEYS = [
    "id",
    "name",
    "user",
    "queue",
    "need",
    "phase",
    "site",
    "runs_on",
    "attempt",
    "submitted_at",
    "leaves_at",
    "started_at",
    "ended_at",
    "exit_code",
    "message",
    "cloud_cost_usd",
]
INSTANCE_KEYS = [
    "id",
    "phase",
    "offer",
    "nodes",
    "nodes_lost",
    "jobs",
    "usd_per_hour",
    "price_known",
    "spot",
    "preempted",
    "requested_at",
    "launched_at",
    "ended_at",
    "billed_s",
    "cost_usd",
    "cost_at_most_usd",
]
EVENT_KEYS = ["seq", "at", "subject", "event", "decision", "reason", "numbers"]


def lines(answer):
    assert answer.code == 0, answer.err
    return answer.out.splitlines()


def data(answer):
    assert answer.code == 0, answer.err
    return json.loads(answer.out)
