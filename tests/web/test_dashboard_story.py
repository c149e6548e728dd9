"""Gantt charts agree with the decision log whatever happened; the comparison with No-Wait is fair."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.world import World
from starburst.core.decisions import Decision
from starburst.core.jobs import JobRecord
from starburst.core.scheduler import Scheduler
from starburst.core.settings import Settings
from starburst.core.state import Changes
from starburst.domain.money import Money
from starburst.store import queries, rows
from starburst.store.queries import DecisionRow, JobRow
from starburst.web.dashboard.gantt import draw, spans, ticks
from starburst.web.dashboard.no_wait import compare
from tests.builders import HOUR, arrival, job, nodes, offer
from tests.web.lively import NOON, Lively, some_jobs


def row_of(record: JobRecord) -> JobRow:
    """A job as listings have it."""
    kept = {
        **rows.job_progress(record),
        "id": record.id,
        "submitted_at": record.submitted_at,
        "seq": record.seq,
    }
    columns = {name: kept[name] for name in JobRow.__dataclass_fields__ if name in kept}
    return JobRow(name=record.job.name, user=record.job.user, queue=record.job.queue, need="", **columns)


def line_of(item: Decision) -> DecisionRow:
    """A decision as listings have it."""
    return DecisionRow(
        item.seq, item.at, item.subject, item.event, item.kind, item.reason, dict(item.numbers)
    )


def test_of_a_thousand_jobs_each_bar_begins_and_ends_with_a_decision() -> None:
    records: dict[str, JobRecord] = {}
    log: dict[str, list[DecisionRow]] = {}

    def on_step(_: float, changes: Changes) -> None:
        records.update(changes.jobs)
        for item in changes.decisions:
            log.setdefault(item.subject, []).append(line_of(item))

    offers = (offer("small", 4), offer("large", 8, 4.0))
    made = World(Scheduler(Settings(factor=0.3)), nodes(8, 8, 8), offers, on_step=on_step)
    made.submit(some_jobs(1000, 3))
    made.run()
    assert len(records) == 1000
    assert sum(record.returned for record in records.values()) > 5
    for record in records.values():
        check(row_of(record), log[record.id])


def check(row: JobRow, story: list[DecisionRow]) -> None:
    """The bars leave no gap, run as often as the log says, and end when the job ended."""
    bars = spans(row, story)
    assert bars[0].start == row.submitted_at
    assert all(left.end == right.start for left, right in pairwise(bars))
    assert bars[-1].end == row.ended_at
    times = {row.submitted_at, *(d.at for d in story)}
    assert {bar.start for bar in bars} <= times
    ran = [(b.start, b.lane) for b in bars if b.kind == "runs"]
    ends = {d.at for d in story if d.kind in ("succeeded", "stopping", "lost")}
    said = [(d.at, d.numbers["where"]) for d in story if d.kind == "started" and d.at not in ends]
    assert ran == said
    assert ran[-1][0] == row.started_at
    chart = draw(row, story, now=1e9)
    drawn = [bar for _, its in chart.lanes for bar in its]
    assert len(drawn) == len(bars)
    assert all(0 <= bar.x <= 100 and bar.x + bar.width <= 100.5 for bar in drawn)


def test_a_job_that_waits_is_drawn_up_to_its_deadline() -> None:
    row = JobRow("a", "a", "", "", "", "queued", 100.0, 1, deadline=500.0)
    chart = draw(row, [], now=200.0)
    ((lane, (bar,)),) = chart.lanes
    assert (lane, bar.x, bar.width, chart.deadline) == ("queue", 0.0, 25.0, 100.0)
    assert draw(replace(row, deadline=1e7), [], now=200.0).deadline is None  # too far to be drawn


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
        # The second finds the node taken and waits 15 min for it; in the cloud it would cost $2 an hour.
        made.submit([arrival(job("a", 1, hours=1), at=begin, takes=HOUR)])
        made.submit([arrival(job("b", 1, hours=3, max_wait_s=HOUR), at=begin + 45 * 60, takes=2 * HOUR)])
        made.run()
        assert {row.phase for row in queries.jobs(lively.office.store)} == {"succeeded"}
        told = compare(lively.office.store, begin, NOON)
    assert told.jobs == 2
    assert (told.paid, told.no_wait) == (Money(), Money.of(4))
    assert told.saved == 1.0


def test_without_jobs_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        assert compare(lively.office.store, 0.0, NOON).saved is None


def test_bills_up_to_now_are_compared_with_bills_up_to_now(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        lively.morning(60)
        store = lively.office.store
        told = compare(store, 0.0, NOON)
        machines = queries.instance_records(store, include_ended=True)
        assert told.paid.micro_usd == pytest.approx(sum(m.cost(NOON).micro_usd for m in machines), abs=100)
        assert told.no_wait > told.paid
