"""Listings: the same rows as a table for people and as keys for programs."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import yaml

from starburst.app.daemon.orphan_ledger import OrphanLedger, ReapedMachine
from starburst.core.model.events import InstanceFailed, MachinesLost
from starburst.domain.cloud import Instance, InstancePhase
from starburst.domain.job import CloudChoice, Member
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from tests.cli.listed_rows import INSTANCE_KEYS, JOB_KEYS, data, lines
from tests.cli.past import NOON


@pytest.fixture(autouse=True)
def _morning(past):
    past.morning()


def test_status_is_a_table(cli):
    assert lines(cli("status")) == [
        "JOB           PHASE      GPUS  ON        FOR  LEAVES   BILL",
        "wait-55555    queued     2                0s   12:14",
        "train-44444   running    4     node      60m",
        "render-33333  running    2     i-000002  60m",
        "bad-22222     failed     1     i-000001  60m          $2.04",
        "done-11111    succeeded  1     node      60m",
    ]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--queue", "papers"], ["bad"]),
        (["--queue", "papers", "--queue", "default", "--user", "bob"], ["bad"]),
        (["--site", "cloud"], ["bad", "render"]),
        (["--since", "90m"], ["render", "train", "wait"]),
        (["--since", "2026-03-02T12:00"], ["wait"]),
        (["--sort", "newest", "--limit", "2"], ["wait", "train"]),
        (["--sort", "phase", "--site", "cluster"], ["train", "done"]),
        (["--sort", "bill", "--limit", "1"], ["bad"]),
        (["--sort", "user"], ["done", "render", "train", "wait", "bad"]),
        (["--sort", "queue", "--limit", "0"], ["done", "render", "train", "wait", "bad"]),
    ],
    ids=" ".join,
)
def test_jobs_are_chosen_sorted_and_limited(cli, words, names):
    assert [row["name"] for row in data(cli("status", "-o", "json", *words))] == names


def test_a_time_that_is_none_is_one_line(cli):
    told = cli("status", "--since", "yesterday")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error: --since: 'yesterday': write a duration such as 2h or 7d")


def test_an_array_is_one_line_with_counts_and_a_table_has_fifty_rows(cli, past):
    """Sixty more jobs: the four of an array are one line; programs get every job."""
    for n in range(4):
        past.submit(f"sweep-b2c3d-{n}", 4, name=f"sweep-{n}", array=Member("sweep-b2c3d", n, 4, 1))
    told = cli("status")
    assert lines(told)[1].split()[:5] == ["sweep-b2c3d[0-3]", "3", "blocked,", "1", "queued"]
    for n in range(60):
        past.submit(f"more{n}-66666")
    told = cli("status")
    assert len(lines(told)) == 51
    assert "16 more: --limit 0 lists them all" in told.err
    assert len(lines(cli("status", "--limit", "0"))) == 67
    assert len(data(cli("status", "-o", "json"))) == 69


def test_an_array_is_explained_by_phase_and_its_jobs_are_named_by_index(cli, past):
    for n in range(3):
        past.submit(f"sweep-b2c3d-{n}", 4, name=f"sweep-{n}", array=Member("sweep-b2c3d", n, 3, 1))
    counts, queued, blocked = lines(cli("explain", "sweep"))
    assert counts == "sweep-b2c3d[0-2]: 2 blocked, 1 queued"
    assert queued.startswith("sweep-b2c3d-0 waits for 4 GPUs")
    assert blocked.startswith("sweep-b2c3d-1 ")
    assert lines(cli("explain", "sweep[0]")) == [queued]
    assert lines(cli("cancel", "job/sweep[2]", "job/wait-55555")) == [
        "job/sweep-b2c3d-2 is being cancelled",
        "job/wait-55555 is being cancelled",
    ]
    assert lines(cli("hold", "sweep")) == ["job/sweep-b2c3d[0-2] is being held (3 jobs)"]
    past.submit("sweep-1-77777", name="sweep-1")
    assert lines(cli("explain", "sweep[1]"))[0].startswith("sweep-b2c3d-1 ")
    told = cli("logs", "sweep[7]")
    assert (told.code, told.err) == (2, "error: sweep has no job with the index 7\n")


def test_options_choose_among_the_jobs_of_an_array_and_are_refused_with_one_job(cli, past):
    for n in range(3):
        past.submit(f"sweep-b2c3d-{n}", 4, name=f"sweep-{n}", array=Member("sweep-b2c3d", n, 3, 1))
    assert cli("status", "sweep", "--phase", "blocked", "-o", "name").out == (
        "job/sweep-b2c3d-1\njob/sweep-b2c3d-2\n"
    )
    newest = cli("status", "sweep", "--sort", "newest", "--limit", "1", "-o", "name")
    assert newest.out == "job/sweep-b2c3d-2\n"
    for choice in (["--phase", "failed"], ["--user", "bob"], ["--queue", "papers"], ["--site", "cloud"]):
        assert data(cli("status", "sweep", "-o", "json", *choice)) == []
        told = cli("status", "wait", "-o", "name", *choice)
        assert (told.code, told.out) == (2, "")
        assert told.err.endswith("choose among jobs, and job/wait-55555 is one; leave them out\n")


def test_many_jobs_are_cancelled_by_choice_and_never_without_consent(cli, past):
    told = cli("cancel", "--all")
    assert (told.code, told.out) == (2, "")
    assert told.err == (
        "error: would cancel 3 jobs of ada, 2 of them running; to do it without a question, add --yes\n"
    )
    assert past.store.requests(9) == []
    assert "not both" in cli("cancel", "wait", "--user", "ada").err
    assert "name the jobs to cancel" in cli("cancel").err
    told = cli("cancel", "--user", "bob", "--yes")
    assert (told.code, told.out, told.err.splitlines()[0]) == (0, "", "no such job is open")
    assert len(lines(cli("cancel", "--user", "ada", "--queue", "default", "-y"))) == 3
    assert {request.kind for request in past.store.requests(9)} == {"cancel"}


def test_wide_adds_columns(cli):
    head, newest, *_ = lines(cli("status", "-o", "wide"))
    columns = "JOB PHASE GPUS ON FOR LEAVES BILL NEEDS USER QUEUE RUN SUBMITTED EXIT MESSAGE"
    assert head.split() == columns.split()
    row = ["wait-55555", "queued", "2", "0s", "12:14", "2", "GPUs", "ada", "default", "12:00:00"]
    assert newest.split() == row


def test_headings_of_local_times_name_their_zone(cli, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    heading = lines(cli("status", "-o", "wide"))[0]
    assert "SUBMITTED (EST)" in heading
    assert "LEAVES (EST)" in heading
    assert "TIME (EST)" in lines(cli("events"))[0]


def test_jobs_have_stable_keys(cli):
    rows = data(cli("status", "-o", "json"))
    assert [list(row) for row in rows] == [JOB_KEYS] * 5
    assert rows[1] == {
        "id": "bad-22222",
        "name": "bad",
        "user": "bob",
        "queue": "papers",
        "need": "1 GPU",
        "phase": "failed",
        "site": "cloud",
        "runs_on": "i-000001",
        "attempt": 1,
        "submitted_at": "2026-03-02T09:00:00.000+00:00",
        "leaves_at": None,
        "started_at": "2026-03-02T09:00:00.000+00:00",
        "ended_at": "2026-03-02T10:00:00.000+00:00",
        "exit_code": 3,
        "message": "its command ended with exit code 3",
        "cloud_cost_usd": 2.04,
    }
    assert rows[4]["leaves_at"] == "2026-03-02T12:14:24.000+00:00"


@pytest.mark.parametrize(
    "words",
    [["status"], ["instances", "-a"], ["cost"], ["events"], ["status", "bad"], ["explain", "wait"]],
    ids=" ".join,
)
def test_yaml_says_what_json_says(cli, words):
    told = cli(*words, "-o", "yaml")
    assert told.code == 0
    assert _steady(yaml.safe_load(told.out)) == _steady(data(cli(*words, "-o", "json")))


def _steady(told):
    """Without what runs on with the clock."""
    for row in told if isinstance(told, list) else [told]:
        for key in ("billed_s", "cost_usd", "running_usd"):
            row.pop(key, None)
    return told


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["status", "--phase", "running"], ["job/render-33333", "job/train-44444"]),
        (["status", "--phase", "queued", "--phase", "failed"], ["job/bad-22222", "job/wait-55555"]),
        (["status", "--user", "bob"], ["job/bad-22222"]),
        (["status", "wait"], ["job/wait-55555"]),
        (["explain", "wait"], ["job/wait-55555"]),
        (["instances"], ["instance/i-000002"]),
        (["instances", "--all"], ["instance/i-000001", "instance/i-000002"]),
        (["cost", "--by", "queue"], ["queue/default", "queue/papers"]),
        (["events", "bad", "-n", "1"], ["event/10"]),
    ],
    ids=" ".join,
)
def test_names_are_for_scripts(cli, words, names):
    assert sorted(lines(cli(*words, "-o", "name"))) == names


def test_the_whole_table_is_piped_whatever_its_width(cli, past):
    name = "a" * 57 + "-66666"
    past.submit(name)
    assert lines(cli("status"))[1].startswith(f"{name}  queued")


def test_nodes(cli, past):
    assert lines(cli("nodes")) == [
        "NODE  STATE  GPUS  TYPE  CPUS  MEMORY GIB",
        "node  ready   4/4  V100  0/64       0/256",
    ]
    (row,) = data(cli("nodes", "-o", "json"))
    assert (row["name"], row["free_gpus"], row["schedulable"]) == ("node", 0, True)


def test_queues(cli, past):
    assert lines(cli("queues")) == [
        "QUEUE    WAITING  KEPT OUT  AT WORK  SUCCEEDED  FAILED",
        "default        1         0        2          1       0",
        "papers         0         0        0          0       1",
    ]
    assert data(cli("queues", "-o", "json"))[1] == {
        "name": "papers",
        "configured": False,
        "share": 1.0,
        "priority": 0,
        "budget_percent": 25.0,
        "jobs": {"failed": 1},
    }


def test_top(cli):
    jobs, sites, head, *rows = lines(cli("top"))
    assert jobs == "12:00:00  jobs: 1 queued, 2 running"
    assert sites == "cluster: 4 of 4 GPUs in use on 1 node; cloud: 1 machine, $2.04/h"
    assert head.startswith("JOB ")
    assert [row.split()[0] for row in rows] == ["render-33333", "train-44444", "wait-55555"]


def test_machines(cli):
    assert lines(cli("instances", "-a")) == [
        "INSTANCE  PHASE  OFFER       JOBS           UP    $/H   COST",
        "i-000001  gone   p3.2xlarge  bad-22222     60m  $2.04  $2.04",
        "i-000002  ready  p3.2xlarge  render-33333  60m  $2.04  $2.04",
    ]
    (row,) = data(cli("instances", "-o", "json"))
    assert list(row) == INSTANCE_KEYS
    assert (row["jobs"], row["usd_per_hour"], row["ended_at"]) == (["render-33333"], 2.04, None)
    assert row["billed_s"] == pytest.approx(3600, abs=1)


def test_a_machine_that_is_not_up_yet_costs_no_more_than_since_it_was_asked_for(cli, past):
    past.submit("new-66666", cloud=CloudChoice.ONLY)
    past.now += 600
    past.store.set_fact("clock", {"origin": time.time(), "speed": 1e-6, "start": past.now})
    assert lines(cli("instances"))[-1].split()[-3:] == ["0s", "$2.04", "≤$0.34"]
    row = data(cli("instances", "-o", "json"))[1]
    assert (row["id"], row["launched_at"], row["cost_usd"]) == ("i-000003", None, 0)
    assert row["cost_at_most_usd"] == pytest.approx(0.34, abs=1e-4)
    past.tell(InstanceFailed("i-000003", "sold out", sold_out=True))
    assert lines(cli("instances", "--all"))[3].split()[-1] == "$0.00", "no machine came of it"


def test_an_instance_that_lost_some_of_its_machines_says_how_many(cli, past):
    past.submit("gang-77777", tasks=(Resources.of(1),) * 3, least_tasks=1, cloud=CloudChoice.ONLY)
    past.ready("i-000003")
    past.start("gang-77777")
    past.tell(MachinesLost("i-000003", ((1, past.now),)))
    assert "  2 × p3.2xlarge, 1 lost  gang-77777  " in lines(cli("instances"))[-1]
    row = data(cli("instances", "-o", "json"))[-1]
    assert (row["nodes"], row["nodes_lost"], row["usd_per_hour"]) == (2, 1, 2.04)


def test_machines_that_nobody_claimed_are_listed_with_their_cost(cli, past):
    machine = Instance("them/i-1", "p3.2xlarge", InstancePhase.READY, NOON - 3600, controller="them")
    book = OrphanLedger(past.store)
    book.note(ReapedMachine.of(machine, "abandoned", Money.of("2.04"), NOON - 60))
    assert lines(cli("instances"))[-1].split() == [
        "them/i-1",
        "reaping",
        "p3.2xlarge",
        "60m",
        "$2.04",
        "$2.04",
    ]
    book.confirm(set(), NOON - 1800)
    assert len(lines(cli("instances"))) == 2
    assert lines(cli("instances", "-a"))[-1].split() == [
        *("them/i-1", "reaped", "p3.2xlarge", "30m", "$2.04", "$1.02")
    ]
    row = data(cli("instances", "-a", "-o", "json"))[-1]
    assert list(row) == INSTANCE_KEYS
    assert (row["phase"], row["jobs"], row["cost_usd"]) == ("reaped", [], 1.02)
    assert lines(cli("cost"))[-1] == "total $4.08", "no job of ours bears it"


def test_the_bill_counts_what_still_runs(cli):
    assert lines(cli("cost")) == [
        "USER   COST  STILL RUNNING",
        "ada   $2.04          $2.04",
        "bob   $2.04          $0.00",
        "total $4.08",
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("user", {"ada", "bob"}),
        ("queue", {"default", "papers"}),
        ("day", {"2026-03-02"}),
        ("job", {"bad-22222", "render-33333"}),
        ("offer", {"p3.2xlarge"}),
    ],
)
def test_the_bill_is_split_by_what_is_asked_for(cli, by, names):
    rows = data(cli("cost", "--by", by, "-o", "json"))
    assert {row[by] for row in rows} == names
    assert sum(row["cost_usd"] for row in rows) == pytest.approx(4.08, abs=0.001)
    assert all(list(row) == [by, "cost_usd", "running_usd", "cluster_usd"] for row in rows)


def test_a_wait_past_every_calendar(cli, past):
    past.submit("long-66666", 2, max_wait_s=1e300)
    assert "on the cluster until the end of time (" in cli("explain", "long").out
    assert data(cli("explain", "long", "-o", "json"))["leaves_at"] is None
    assert lines(cli("status"))[1].split()[-1] == "time"


def test_times_are_the_schedulers(cli):
    """The clock of this home stands at noon of a day long past, whatever the wall's says."""
    assert NOON < 1_800_000_000
    assert "12:00:00" in lines(cli("events", "-n", "1"))[1]


def test_nothing_is_said_on_standard_error_of_tables_for_programs(cli):
    assert cli("status", "-o", "json").err == ""
    assert "no starburst runs in" in cli("status").err


def test_a_listing_loads_neither_the_config_nor_the_scheduler():
    """Start-up is a quarter of a second of CPU; each of these adds a tenth or more."""
    slow = {
        "starburst.app.config.config",
        "starburst.core.scheduler",
        "translator.manifests",
        "structlog",
        "httpx",
    }
    script = f"import sys, starburst.cli.jobs.status; print(*{slow!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
