"""`starburst cost`: the bill for other programs, the cluster's own price, and what may yet be spent."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timezone

import pytest

from starburst.app.config import parse_config
from starburst.domain.job import CloudChoice
from tests.cli.past import CONFIG, Past

MIDNIGHT = datetime(2026, 3, 1, tzinfo=timezone.utc).timestamp()
HOUR = 3600.0
CAPS = [
    {"usd": 50, "per": "day"},
    {"usd": 2.1, "per": "month", "user": "bob", "warn_at": 0.5},
    {"usd": 2, "per": "day", "queue": "papers", "then": "finish"},
]


def configure(past: Past, **more: object) -> None:
    past.store.set_fact("config", parse_config({**CONFIG, **more}, "test").model_dump(mode="json"))


def rows(answer):
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


@pytest.fixture
def over_midnight(home):
    """A machine of $2.04 an hour from two hours before the first of March until one hour after it."""
    with Past.begin(home / "starburst.db", MIDNIGHT + 2 * HOUR) as past:
        past.now = MIDNIGHT - 2 * HOUR
        past.submit("a-11111", cloud=CloudChoice.ONLY)
        past.ready("i-000001")
        past.start("a-11111")
        past.now = MIDNIGHT + HOUR
        past.end("a-11111")
        past.gone("i-000001")
        past.now = MIDNIGHT + 2 * HOUR
        yield past


@pytest.mark.parametrize(
    ("by", "bills"),
    [
        ("day", {"2026-02-28": 4.08, "2026-03-01": 2.04}),
        ("month", {"2026-02": 4.08, "2026-03": 2.04}),
    ],
)
def test_each_day_and_month_pays_for_its_own_hours(cli, over_midnight, by, bills):
    assert {row[by]: row["cost_usd"] for row in rows(cli("cost", "--by", by, "-o", "json"))} == bills


def test_the_bill_is_a_table_for_other_programs(cli, past):
    past.morning()
    told = cli("cost", "--by", "queue", "-o", "csv")
    lines = list(csv.DictReader(io.StringIO(told.out)))
    assert [line["queue"] for line in lines] == ["default", "papers"]
    assert [float(line["cost_usd"]) for line in lines] == [2.04, 2.04]
    assert [line["cluster_usd"] for line in lines] == ["", ""]


def test_an_empty_bill_is_no_table(cli, past):
    assert cli("cost", "-o", "csv").out == ""


def test_what_the_cluster_is_reckoned_at_has_its_own_column(cli, past):
    """done had one GPU for an hour, train has four since an hour."""
    past.morning()
    configure(past, cluster={"usd_per_gpu_hour": 0.5})
    assert cli("cost").out.splitlines() == [
        "USER   COST  STILL RUNNING  CLUSTER",
        "ada   $2.04          $2.04    $2.50",
        "bob   $2.04          $0.00    $0.00",
        "total $4.08, and $2.50 of the cluster",
    ]
    by_job = {row["job"]: row["cluster_usd"] for row in rows(cli("cost", "--by", "job", "-o", "json"))}
    assert by_job == pytest.approx(
        {"train-44444": 2.0, "done-11111": 0.5, "bad-22222": 0, "render-33333": 0}, abs=1e-4
    )


@pytest.mark.parametrize("by", ["user", "queue", "day", "month", "job", "offer"])
def test_every_split_has_the_same_sums(cli, past, by):
    past.morning()
    configure(past, cluster={"usd_per_gpu_hour": 0.5})
    found = rows(cli("cost", "--by", by, "-o", "json"))
    assert sum(row["cost_usd"] for row in found) == pytest.approx(4.08, abs=1e-4)
    assert sum(row["cluster_usd"] for row in found) == pytest.approx(2.5, abs=1e-4)


def test_caps_that_are_new_count_what_their_window_has_cost_already(cli, past):
    past.morning()
    configure(past, caps=CAPS)
    lines = cli("cost", "--caps").out.splitlines()
    assert lines[0].split() == ["CAP", "CAP", "SPENT", "RESERVED", "LEFT", "WINDOW", "ENDS", "STATE"]
    assert [line.split()[0] for line in lines[1:]] == ["day", "month/user=bob", "day/queue=papers"]
    everybody, bob, papers = rows(cli("cost", "--caps", "-o", "json"))
    assert everybody["spent_usd"] == pytest.approx(4.08, abs=1e-3)
    assert everybody["left_usd"] == pytest.approx(
        50 - everybody["spent_usd"] - everybody["reserved_usd"], abs=1e-5
    )
    assert everybody["usd_per_hour"] == 2.04
    assert (bob["spent_usd"], bob["state"], bob["window_end"]) == (
        2.04,
        "warned",
        "2026-04-01T00:00:00.000+00:00",
    )
    assert (papers["spent_usd"], papers["left_usd"], papers["state"]) == (2.04, 0, "reached")


def test_the_keys_of_a_cap_are_a_promise(cli, past):
    configure(past, caps=CAPS[:1])
    (row,) = rows(cli("cost", "--caps", "-o", "json"))
    assert list(row) == [
        *("name", "per", "queue", "user", "cap_usd", "spent_usd", "reserved_usd", "left_usd"),
        *("usd_per_hour", "window_start", "window_end", "warn_at", "then", "state"),
    ]
    assert cli("cost", "--caps", "-o", "name").out == "cap/cap/day\n"


def test_without_caps_it_says_how_to_have_some(cli, past):
    assert cli("cost", "--caps").err == (
        "nothing caps what may be spent; the section caps of the config does\n"
    )
