"""The jobs of CronJobs: one a tick, whatever happens to the scheduler, as their concurrency policy says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from starburst.app.daemon.cron_ticker import LOOK_S, CronTicker
from starburst.app.jobs import cron_jobs as steering
from starburst.core.model.events import CancelRequested
from starburst.domain.job import Submission
from starburst.store import cron_jobs
from starburst.store.cron_jobs import CronJob
from starburst.store.listings import queries
from starburst.store.quota import Quota
from starburst.store.store import Store
from tests.store.samples import started, step, take_up
from translator.intake.texts import read_firsts
from translator.kinds.cron_job import job_of_tick

HOUR_S = 3600.0
NOON = datetime(2026, 11, 23, 12, tzinfo=timezone.utc).timestamp()
TEXT = """
apiVersion: batch/v1
kind: CronJob
metadata: {{name: report}}
spec:
  schedule: "0 * * * *"
  timeZone: UTC
  {more}
  jobTemplate:
    metadata: {{annotations: {{{hints}}}}}
    spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, command: ["true"]}}]}}}}}}
"""


class Clock:
    """A wall clock that the test sets."""

    now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "starburst.db") as store:
        yield store


@pytest.fixture
def clock() -> Clock:
    return Clock()


def put(store: Store, items: list[Submission], now: float) -> list[CronJob]:
    with store.write() as conn:
        return cron_jobs.put(conn, items, now)


def cron_job(store: Store, clock: Clock, more: str = "", hints: str = "") -> CronJob:
    (item,) = read_firsts(TEXT.format(more=more, hints=hints), "test", suffix=lambda: "a1b2c")
    item = replace(item, job=replace(item.job, user="ada"))
    return put(store, [item], clock.now)[0]


def look(store: Store, clock: Clock, at_s: float, quota: Quota | None = None) -> float:
    """One look of the scheduler, so many seconds after noon; the seconds until its next."""
    clock.now = NOON + at_s
    return CronTicker(store, clock, quota).look()


def asked(store: Store, kind: str = "submit") -> list[str]:
    """Ids of the jobs of which this was requested."""
    return [request.job_id for request in store.requests(99) if request.kind == kind]


def id_at(at_s: float) -> str:
    return f"report-a1b2c-{int(NOON + at_s) // 60}"


def end_all(store: Store) -> None:
    """A scheduler takes all jobs up and ends them."""
    scheduler, ids = started(), asked(store)
    take_up(store, scheduler, 0.0)
    ends = [CancelRequested(job_id) for job_id in ids]
    store.commit(step(scheduler, ends, 1.0))


def test_each_tick_has_one_job_and_the_next_look_is_at_the_next_tick(store: Store, clock: Clock) -> None:
    cron_job(store, clock)
    assert look(store, clock, 10) == LOOK_S
    assert asked(store) == []
    assert look(store, clock, HOUR_S - 2) == 2.0
    for at_s in (HOUR_S, HOUR_S + 1, HOUR_S + 1800, 2 * HOUR_S + 1):
        look(store, clock, at_s)
    assert asked(store) == [id_at(HOUR_S), id_at(2 * HOUR_S)]
    (request, _) = store.requests(9)
    assert request.submission is not None
    assert (request.submission.job.user, request.submission.job.name) == ("ada", "report")
    assert request.submission.timing is None


def test_of_ticks_that_were_missed_the_last_one_is_made_up_for(store: Store, clock: Clock) -> None:
    cron_job(store, clock)
    look(store, clock, 7.5 * HOUR_S)
    assert asked(store) == [id_at(7 * HOUR_S)]


def test_a_scheduler_killed_between_the_job_and_the_note_of_it_submits_no_second_one(
    store: Store, clock: Clock
) -> None:
    one = cron_job(store, clock)
    store.submit([job_of_tick(one.submission, NOON + HOUR_S)], NOON)
    look(store, clock, HOUR_S)
    assert asked(store) == [id_at(HOUR_S)]
    assert cron_jobs.find(store, "report").last_tick == NOON + HOUR_S


def test_forbid_waits_for_the_job_before_and_says_so(store: Store, clock: Clock) -> None:
    cron_job(store, clock, "concurrencyPolicy: Forbid")
    look(store, clock, HOUR_S)
    look(store, clock, 2 * HOUR_S)
    assert asked(store) == [id_at(HOUR_S)]
    said = steering.explanation(cron_jobs.find(store, "report"), clock.now)
    assert said == (
        "ticks at 0 * * * * (UTC); next on 23 Nov 2026 15:00; last on 23 Nov 2026 13:00; "
        f"the tick of 23 Nov 2026 14:00 waits: {id_at(HOUR_S)} has not ended"
    )
    end_all(store)
    look(store, clock, 2 * HOUR_S + 300)
    assert asked(store) == [id_at(2 * HOUR_S)]
    assert cron_jobs.find(store, "report").message == ""


def test_a_tick_that_waited_past_its_deadline_is_left_out_and_it_is_said(store: Store, clock: Clock) -> None:
    cron_job(store, clock, "concurrencyPolicy: Forbid\n  startingDeadlineSeconds: 60")
    look(store, clock, HOUR_S)
    look(store, clock, 2 * HOUR_S)
    end_all(store)
    look(store, clock, 2 * HOUR_S + 61)
    assert asked(store) == []
    message = cron_jobs.find(store, "report").message
    assert message.startswith(
        "the tick of 23 Nov 2026 14:00 was left out when its starting deadline had passed"
    )


def test_replace_cancels_the_job_before_and_begins_when_it_has_ended(store: Store, clock: Clock) -> None:
    cron_job(store, clock, "concurrencyPolicy: Replace")
    look(store, clock, HOUR_S)
    look(store, clock, 2 * HOUR_S)
    assert asked(store, "cancel") == [id_at(HOUR_S)]
    second = store.requests(9)[1].submission
    assert second is not None
    assert (second.job.id, second.job.after_any) == (id_at(2 * HOUR_S), (id_at(HOUR_S),))


def test_a_tick_beyond_the_quota_waits_and_comes_when_there_is_room(store: Store, clock: Clock) -> None:
    cron_job(store, clock)
    look(store, clock, HOUR_S)
    look(store, clock, 2 * HOUR_S, Quota(per_user=1))
    assert asked(store) == [id_at(HOUR_S)]
    assert "limits.pending_per_user is 1" in cron_jobs.find(store, "report").message
    end_all(store)
    look(store, clock, 2 * HOUR_S + 60, Quota(per_user=1))
    assert asked(store) == [id_at(2 * HOUR_S)]


def test_an_array_has_all_its_members_at_each_tick(store: Store, clock: Clock) -> None:
    cron_job(store, clock, hints='starburst.io/array: "0-2"')
    look(store, clock, HOUR_S)
    jobs = [row.id for row in queries.jobs(store)]
    assert jobs == [f"{id_at(HOUR_S)}-{index}" for index in range(3)]
    assert steering.unfinished(store, cron_jobs.find(store, "report")) == jobs


def test_a_suspended_one_ticks_no_more_and_a_resumed_one_makes_up_for_the_last(
    store: Store, clock: Clock
) -> None:
    one = cron_job(store, clock)
    steering.STEER["hold"](store, [one])
    look(store, clock, 3 * HOUR_S)
    assert asked(store) == []
    steering.STEER["release"](store, [cron_jobs.find(store, "report")])
    look(store, clock, 3 * HOUR_S + 5)
    assert asked(store) == [id_at(3 * HOUR_S)]


def test_a_cancelled_one_is_gone_with_its_job_and_one_cancelled_within_a_tick_leaves_none(
    store: Store, clock: Clock
) -> None:
    one = cron_job(store, clock)
    look(store, clock, HOUR_S)
    steering.STEER["cancel"](store, [cron_jobs.find(store, "report")])
    assert (cron_jobs.every(store), asked(store, "cancel")) == ([], [id_at(HOUR_S)])
    CronTicker(store, clock)._tick(one, NOON + 2 * HOUR_S, NOON + 2 * HOUR_S)
    assert asked(store, "cancel") == [id_at(HOUR_S), id_at(2 * HOUR_S)]


def test_a_zone_that_the_machine_knows_no_more_holds_up_no_other(store: Store, clock: Clock) -> None:
    one = cron_job(store, clock)
    lost = replace(one.timing.schedule, zone="Mars/Olympus")
    gone = replace(one.submission, job=replace(one.submission.job, name="gone", id="gone-b2c3d"))
    put(store, [replace(gone, timing=replace(one.timing, schedule=lost))], clock.now)
    look(store, clock, HOUR_S)
    assert asked(store) == [id_at(HOUR_S)]
    said = steering.explanation(cron_jobs.find(store, "gone"), clock.now)
    assert "does not tick: there is no time zone Mars/Olympus" in said


def test_submitted_again_it_is_replaced_and_a_new_schedule_makes_up_for_nothing(
    store: Store, clock: Clock
) -> None:
    first = cron_job(store, clock)
    clock.now = NOON + 1800
    (item,) = read_firsts(TEXT.format(more="", hints="").replace("0 *", "10 *"), "t", suffix=lambda: "zzzzz")
    (second,) = put(store, [replace(item, job=replace(item.job, user="ada"))], clock.now)
    assert second.id == first.id
    look(store, clock, 1860)
    assert asked(store) == []
    (others,) = put(store, [replace(item, job=replace(item.job, user="bob"))], clock.now)
    assert others.id == "report-zzzzz"
