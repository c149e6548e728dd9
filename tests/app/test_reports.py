"""What runs say from afar reaches the scheduler: a gang's slowest task counts, threads never wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.app.config import parse_config
from starburst.app.daemon import progress_inbox
from starburst.app.daemon.controller import Companion
from starburst.app.daemon.progress_inbox import GangProgress, ProgressInbox, reporting, together
from starburst.app.daemon.shortages import ShortageRetry
from starburst.bus.hints import HintOutcome, HintRefusedError, ThroughputHint
from starburst.core.model.events import Event, JobSubmitted, NodesChanged, Progress, RunStarted
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.domain.job import Job, Workload
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.runs.ports import Report, Run
from starburst.store.report_tokens import report_key, report_token
from starburst.store.store import Store


def said(
    job: str, done: float, *, rank: int = 0, attempt: int = 1, total: float | None = 100
) -> ThroughputHint:
    """One iteration a second."""
    return ThroughputHint(job=job, attempt=attempt, done=done, total=total, per_s=1.0, rank=rank)


@pytest.fixture
def scheduler() -> Scheduler:
    """Where "one" runs, and "gang" of two tasks."""
    core = Scheduler(Settings())
    jobs = [Job("one", "one", (Resources.of(1),)), Job("gang", "gang", (Resources.of(1),) * 2)]
    core.handle([NodesChanged((Node("node", Resources.of(4, 8, 64)),)), *map(JobSubmitted, jobs)], 0.0)
    core.handle([RunStarted("one", 1), RunStarted("gang", 1)], 1.0)
    return core


def test_a_gang_is_as_far_as_the_task_that_ends_last(scheduler: Scheduler) -> None:
    heard: list[Event] = []
    tasks = GangProgress(scheduler, heard.append, clock := Clock())
    tasks.hear(said("gang", 10, rank=0))
    tasks.hear(said("gang", 30, rank=1))
    assert heard == [Progress("gang", 1, 10, 100, 1.0)], "rank 1 ends before rank 0"
    clock.now += 50
    tasks.hear(said("gang", 85, rank=0))
    assert len(heard) == 1, "rank 1 was not heard of again: it ends later"
    tasks.hear(said("gang", 40, rank=1))
    assert heard[1:] == [Progress("gang", 1, 40, 100, 1.0)]
    tasks.hear(said("gang", 0, rank=2))
    assert len(heard) == 2, "there is no rank 2"
    clock.now += 1
    tasks.hear(said("gang", 0, rank=0, total=None))
    assert heard[2:] == [Progress("gang", 1, 0, None, 1.0)], "nobody knows when the gang will end"


def test_what_is_late_is_refused(scheduler: Scheduler) -> None:
    heard: list[Event] = []
    tasks = GangProgress(scheduler, heard.append)
    for late in (said("one", 1, attempt=2), said("two", 1)):
        with pytest.raises(HintRefusedError) as refused:
            tasks.hear(late)
        assert refused.value.outcome is HintOutcome.LATE
    assert heard == []


def test_runs_not_heard_of_for_longest_are_forgotten(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_inbox, "MOST", 1)
    tasks = GangProgress(scheduler, lambda _event: None)
    for job in ("one", "gang", "one"):
        tasks.hear(said(job, 1))
    assert [job for job, _ in tasks._runs] == ["one"]


def test_a_flood_of_words_is_few_events(scheduler: Scheduler) -> None:
    heard: list[Event] = []
    tasks = GangProgress(scheduler, heard.append, clock := Clock())
    for number in range(400):
        tasks.hear(said("one", number % 100))
        clock.now += 0.025
    assert len(heard) == 10 / progress_inbox.LEAST_S


def test_words_of_threads_arrive_in_the_loop_the_latest_of_each_task(scheduler: Scheduler) -> None:
    inbox, heard = ProgressInbox(), list[tuple[Event, str]]()

    def report(event: Event) -> None:
        heard.append((event, threading.current_thread().name))

    async def main() -> None:
        inbox.put(said("one", 1))  # before it listens
        inbox.put(said("one", 2))
        inbox.put(said("gone", 1))
        task = asyncio.create_task(inbox.run(GangProgress(scheduler, report, clock := Clock())))
        while len(heard) < 1:
            await asyncio.sleep(0.001)
        clock.now += 10
        await asyncio.to_thread(inbox.put, said("one", 3))
        while len(heard) < 2:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 10))
    inbox.put(said("one", 4))  # nobody listens any more: nothing happens
    here = threading.current_thread().name
    assert heard == [(Progress("one", 1, done, 100, 1.0), here) for done in (2, 3)]


def test_an_inbox_that_nobody_empties_has_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_inbox, "MOST", 2)
    inbox = ProgressInbox()
    for number in range(5):
        inbox.put(said(f"job-{number}", 1))
    inbox.put(said("job-1", 2))
    assert [(it.job, it.done) for it in inbox._said.values()] == [("job-0", 1), ("job-1", 2)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "starburst.db") as opened:
        yield opened


def test_runs_are_told_where_only_if_the_config_says_so(store: Store) -> None:
    run = Run(Job("a/b", "a", (Resources.of(1),)), 3, (), Workload())
    assert reporting(parse_config({}, "test"), store)(run) == {}
    assert report_key(store) is None
    config = parse_config({"http": {"report_url": "https://burst.example.org/x/"}}, "test")
    told = reporting(config, store)(run)
    key = report_key(store)
    assert key is not None
    assert told == {
        "STARBURST_REPORT": "https://burst.example.org/x/api/v1/jobs/a%2Fb/attempts/3/progress",
        "STARBURST_REPORT_TOKEN": report_token(key, "a/b"),
    }
    assert reporting(config, store)(run) == told, "also after a restart"


def test_companions_go_on_together(scheduler: Scheduler) -> None:
    begun: list[int] = []

    def companion(number: int) -> Companion:
        async def run(_report: Report) -> None:
            begun.append(number)
            await asyncio.sleep(0)

        return run

    assert together([None, None], ShortageRetry()) is None
    both = together([companion(1), None, companion(2)], ShortageRetry())
    assert both is not None
    asyncio.run(both(lambda _event: None))
    assert begun == [1, 2]


class Clock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
