"""Gantt charts are drawn as they should be; the comparison with No-Wait is fair.

That the charts of 1,000 jobs agree with the decision log is in test_agreement.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.world import World
from starburst.core.model.events import CancelRequested, ReleaseRequested
from starburst.domain.job import CloudChoice
from starburst.domain.money import Money
from starburst.store.listings import queries
from starburst.store.listings.row_types import DecisionRow, JobRow
from starburst.web.dashboard.baseline import again, compare
from starburst.web.dashboard.gantt import draw, spans, ticks
from tests.builders import HOUR, arrival, job, nodes, offer
from tests.cli.past import Past
from tests.web.lively import NOON, Lively


def test_a_job_that_waits_is_drawn_up_to_its_deadline() -> None:
    row = JobRow("a", "a", "", "", "", "queued", 100.0, 1, deadline=500.0)
    chart = draw(row, [], now=200.0)
    ((lane, (bar,)),) = chart.lanes
    assert (lane, bar.x, bar.width, chart.deadline) == ("queue", 0.0, 25.0, 100.0)
    assert draw(replace(row, deadline=1e7), [], now=200.0).deadline is None  # too far to be drawn


def story_of(*decisions: tuple[str, str]) -> list[DecisionRow]:
    """One decision a minute, from 100 on."""
    return [
        DecisionRow(n, 100.0 + 60 * n, "a", "", kind, "", {"where": where})
        for n, (kind, where) in enumerate(decisions)
    ]


def bars_of(*decisions: tuple[str, str], runs_on: str = "n1") -> list[tuple[str, str]]:
    """Kinds and lanes."""
    row = JobRow("a", "a", "", "", "", "running", 100.0, 1, runs_on=runs_on)
    return [(span.kind, span.lane) for span in spans(row, story_of(*decisions))]


def test_a_pause_after_a_failure_and_a_hold_are_no_run() -> None:
    ran = [("placed", "n1"), ("started", "n1")]
    queued, kept_out = ("waits", "queue"), ("pauses", "kept out")
    whys = dict.fromkeys(("lost", "capped", "released"), queued)
    whys |= dict.fromkeys(("retries", "not-started", "held", "awaits", "turn"), kept_out)
    for why, rests in whys.items():
        found = bars_of(*ran, (why, ""), *ran)
        assert found == [
            ("starts", "n1"),
            ("runs", "n1"),
            rests,
            ("starts", "n1"),
            ("runs", "n1"),
        ]
    assert bars_of(*ran, ("retries", ""), ("waits", ""), *ran)[2:4] == [kept_out, queued]


def test_a_job_on_its_way_home_is_stopping() -> None:
    found = bars_of(
        ("offloaded", ""), ("started", "i-1"), ("returning", ""), ("placed", "n1"), ("started", "n1")
    )
    assert found == [("starts", "i-1"), ("runs", "i-1"), ("stops", "i-1"), ("starts", "n1"), ("runs", "n1")]


def test_a_gang_that_goes_on_with_fewer_machines_does_not_wait_between() -> None:
    lost = [("offloaded", ""), ("started", "i-1"), ("stopping", ""), ("shrinks", "i-1"), ("started", "i-1")]
    kinds = ["starts", "runs", "stops", "starts", "runs"]
    assert bars_of(*lost) == [(kind, "i-1") for kind in kinds]


def test_a_launch_that_came_to_nothing_is_not_drawn_where_the_job_went_then() -> None:
    found = bars_of(("offloaded", ""), ("no-offer", ""), ("placed", "n1"), ("started", "n1"))
    assert found == [("starts", "cloud"), ("waits", "queue"), ("starts", "n1"), ("runs", "n1")]
    assert bars_of(("offloaded", ""), runs_on="i-7") == [("starts", "i-7")]


@given(st.floats(0, 1e10), st.floats(1, 1e8))
def test_ticks_are_few_round_and_within(begin: float, width: float) -> None:
    found = ticks(begin, begin + width)
    assert len(found) <= 8
    assert all(begin <= at <= begin + width and at == int(at) for at in found)
    assert len({round(right - left) for left, right in pairwise(found)}) <= 1


def test_no_wait_would_have_rented_for_whoever_found_no_room(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        made = World(lively.scheduler, nodes(1), [offer("one", 1, 2.0)], on_step=lively.keep)
        begin = NOON - 4 * HOUR
        # The second finds the node taken and waits 15 min for it; in the cloud it would cost $2 an hour,
        # and three minutes for its machine to come up.
        made.submit([arrival(job("a", 1, hours=1), at=begin, takes=HOUR)])
        made.submit([arrival(job("b", 1, hours=3, max_wait_s=HOUR), at=begin + 45 * 60, takes=2 * HOUR)])
        made.run()
        assert {row.phase for row in queries.jobs(lively.app_context.store)} == {"succeeded"}
        told = compare(lively.app_context.store, begin, NOON)
    assert told.jobs == 2
    assert (told.paid, told.no_wait) == (Money(), Money.of("4.10"))
    assert told.saved == 1.0


def test_no_wait_rents_for_a_released_job_and_not_for_one_that_never_ran(tmp_path: Path) -> None:
    with Past.begin(tmp_path / "home" / "starburst.db", NOON) as past:
        past.submit("train-11111", 4)
        past.start("train-11111")
        for name in ("held-22222", "kept-33333"):
            past.submit(name, cloud=CloudChoice.ONLY, hold=True)
        past.submit("late-44444", 2, runtime_estimate_s=10 * HOUR)
        past.now += 600
        past.tell(CancelRequested("late-44444"))
        assert compare(past.store, NOON, past.now).no_wait == Money()
        past.tell(ReleaseRequested("held-22222"))
        past.ready("i-000001")
        past.start("held-22222")
        past.now += HOUR
        past.end("held-22222")
        past.gone("i-000001")
        told = compare(past.store, NOON, past.now)
    assert (told.jobs, told.paid) == (4, Money.of("2.04"))
    assert told.saved == pytest.approx(0, abs=0.1)


def test_a_job_that_has_not_ended_counts_with_the_run_time_that_it_is_taken_to_have(tmp_path: Path) -> None:
    with Past.begin(tmp_path / "home" / "starburst.db", NOON) as past:
        past.scheduler.state.load.finished(1, 100 * HOUR)
        for name in ("long-11111", "told-22222"):
            past.submit(name, runtime_estimate_s=HOUR if name == "told-22222" else None)
        long, told = (past.scheduler.state.jobs[name] for name in ("long-11111", "told-22222"))
        assert long.wait is not None
        assert again(long, NOON).duration_s == long.wait.runtime_s > 2 * HOUR
        assert again(told, NOON).duration_s == HOUR


def test_without_jobs_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        assert compare(lively.app_context.store, 0.0, NOON).saved is None


def test_bills_up_to_now_are_compared_with_bills_up_to_now(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        lively.morning(60)
        store = lively.app_context.store
        told = compare(store, 0.0, NOON)
        machines = queries.instance_records(store, include_ended=True)
        assert told.paid.micro_usd == pytest.approx(sum(m.cost(NOON).micro_usd for m in machines), abs=100)
        assert told.no_wait > told.paid
