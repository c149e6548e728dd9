"""The decision log, one job's story and its explanation on the command line."""

from __future__ import annotations

import json

import pytest

from tests.cli.listed_rows import EVENT_KEYS, JOB_KEYS, data, lines


@pytest.fixture(autouse=True)
def _morning(past):
    past.morning()


def test_the_decision_log(cli):
    assert lines(cli("events", "bad")) == [
        " TIME  SUBJECT    DECISION   REASON",
        "09:00  bad-22222  offloaded  leaves for the cloud: its starburst.io/cloud says only; rents "
        "p3.2xlarge at $2.04/h",
        "09:00  bad-22222  started    runs on i-000001 (attempt 1)",
        "10:00  bad-22222  failed     its command ended with exit code 3",
    ]
    rows = data(cli("events", "-o", "json"))
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(list(row) == EVENT_KEYS for row in rows)


def test_the_log_of_a_machine_and_the_last_of_all(cli):
    assert [row["decision"] for row in data(cli("events", "i-000001", "-o", "json"))] == [
        "launched",
        "ready",
        "terminating",
        "gone",
    ]
    assert len(lines(cli("events", "--last", "2"))) == 3


def test_following_the_log_of_a_job_that_is_over_ends(cli):
    told = lines(cli("events", "bad", "-f"))
    assert told[-1] == "   10:00  bad-22222  its command ended with exit code 3"
    streamed = [json.loads(line) for line in lines(cli("events", "bad", "-f", "-o", "json"))]
    assert streamed == data(cli("events", "bad", "-o", "json"))


def test_one_job_tells_its_story(cli):
    assert lines(cli("status", "bad")) == [
        "bad-22222 failed at 10:00: its command ended with exit code 3; its cloud bill is $2.04",
        "needs 1 GPU; submitted by bob to queue papers",
        "     09:00  leaves for the cloud: its starburst.io/cloud says only; rents p3.2xlarge at $2.04/h",
        "     09:00  runs on i-000001 (attempt 1)",
        "     10:00  its command ended with exit code 3",
    ]
    told = data(cli("status", "bad", "-o", "json"))
    assert list(told) == [*JOB_KEYS, "explanation", "decisions"]
    assert [list(row) for row in told["decisions"]] == [["at", "decision", "reason"]] * 3


def test_watching_a_job_that_is_over_ends(cli):
    assert cli("status", "bad", "--watch").out == cli("status", "bad").out
    (line,) = lines(cli("status", "bad", "--watch", "-o", "json"))
    assert json.loads(line)["phase"] == "failed"


def test_explaining(cli):
    assert lines(cli("explain", "wait")) == [
        "wait-55555 waits for 2 GPUs on the cluster until 12:14 (Compute-Wait: 2 GPU × 1.5 h × α 0.08 = "
        "14.4 min); 1st in line for 2 GPUs; would then cost about $3.06 on p3.2xlarge"
    ]
    assert data(cli("explain", "wait", "-o", "json")) == {
        "id": "wait-55555",
        "phase": "queued",
        "explanation": cli("explain", "wait").out.strip().removeprefix("wait-55555 "),
        "leaves_at": "2026-03-02T12:14:24.000+00:00",
        "position": 1,
        "cloud_cost_usd": 3.06,
        "offers": ["p3.2xlarge"],
    }


def test_explaining_what_the_core_has_forgotten(cli):
    assert lines(cli("explain", "done")) == ["done-11111 succeeded at 10:00: finished after 1 h"]
