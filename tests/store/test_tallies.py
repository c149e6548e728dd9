"""What counts as a wait for a place, and what a job's user asked it to wait for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starburst.core.model.events import (
    CancelRequested,
    Event,
    HoldRequested,
    JobSubmitted,
    NodesChanged,
    OffersChanged,
    ReleaseRequested,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import facts
from starburst.domain.job import Job, Member, Submission, Workload
from starburst.store import counters
from starburst.store.counters import DecisionCounters, WaitHistogram
from starburst.store.store import Step, Store
from tests.builders import job, nodes, offer

SETTINGS = Settings(waiting="constant", factor=100.0, returns="never")


class Kept:
    """A scheduler with one GPU, every step of which is stored; it is started anew before each."""

    def __init__(self, path: Path, gpus: int = 1) -> None:
        self.store = Store.open(path)
        self._stored: set[str] = set()
        self.at(0.0, NodesChanged(nodes(gpus)), OffersChanged((offer("small", 1),)))

    def at(self, now: float, *events: Event | Job) -> None:
        """These at that time."""
        batch = [JobSubmitted(event) if isinstance(event, Job) else event for event in events]
        scheduler = restore(SETTINGS, self.store.snapshot())
        scheduler.handle(batch, now)
        self._commit(scheduler, batch, now)

    def _commit(self, scheduler: Scheduler, batch: list[Event], now: float) -> None:
        new = {e.job.id: Submission(e.job, Workload(())) for e in batch if isinstance(e, JobSubmitted)}
        self.store.commit(
            Step(
                now,
                scheduler.take_changes(),
                facts(scheduler.state),
                batch,
                submissions=new,
                nodes=scheduler.state.capacity.nodes,
                offers=list(scheduler.state.fleet.offers.values()),
            )
        )

    def runs(self, name: str, since: float, until: float, code: int = 0, attempt: int = 1) -> None:
        """It has a place, and works."""
        self.at(since, RunStarted(name, attempt))
        self.at(until, RunEnded(name, attempt, RunEnd.EXITED, code))

    @property
    def told(self) -> DecisionCounters:
        with self.store.read() as conn:
            return counters.tallies(conn)

    def waits(self, site: str = "cluster") -> tuple[int, float]:
        """How many, and their sum."""
        with self.store.read() as conn:
            found = counters.waits(conn).get("default", {}).get(site, WaitHistogram())
        return sum(found.counts), found.sum_s


@pytest.fixture
def kept(path: Path, request: pytest.FixtureRequest) -> Iterator[Kept]:
    """With one GPU, or as many as the test's parameter says."""
    made = Kept(path, getattr(request, "param", 1))
    yield made
    made.store.close()


def test_the_wait_is_the_time_in_the_queue(kept: Kept) -> None:
    kept.at(10, job("a"), job("b"))
    assert kept.waits() == (1, 0)
    kept.runs("a", 11, 40)
    assert kept.waits() == (2, 30)
    assert kept.told.delay_s == 30


def test_who_was_held_from_the_start_waits_from_the_release(kept: Kept) -> None:
    kept.at(10, job("a", hold=True))
    kept.at(5000, ReleaseRequested("a"))
    assert kept.waits() == (1, 0)
    assert kept.told.delay_s == 0


def test_who_is_held_while_it_waits_has_waited_for_both_times(kept: Kept) -> None:
    kept.at(10, job("a"), job("b"))
    kept.at(15, HoldRequested("b"))
    kept.at(1000, ReleaseRequested("b"))
    kept.at(1007, HoldRequested("b"))
    kept.at(2000, ReleaseRequested("b"))
    kept.runs("a", 2001, 2030)
    assert kept.waits() == (2, 5 + 7 + 30)
    assert kept.told.delay_s == 42
    assert not kept.told.waited


def test_what_a_held_job_had_waited_is_forgotten_with_it(kept: Kept) -> None:
    kept.at(10, job("a"), job("b"))
    kept.at(15, HoldRequested("b"))
    assert kept.told.waited == {"b": 5}
    kept.at(20, CancelRequested("b"))
    assert not kept.told.waited
    assert kept.waits() == (1, 0)


def test_held_again_without_a_wait_between_it_has_not_waited(kept: Kept) -> None:
    kept.at(10, job("a"), job("b", hold=True))
    kept.at(500, ReleaseRequested("b"), HoldRequested("b"))
    kept.at(900, ReleaseRequested("b"))
    kept.runs("a", 901, 910)
    assert kept.waits() == (2, 10)


def test_who_comes_after_another_waits_from_when_that_is_over(kept: Kept) -> None:
    kept.at(10, job("a"), job("b", after_ok=("a",)))
    kept.runs("a", 11, 4000)
    assert kept.waits() == (2, 0)


@pytest.mark.parametrize("kept", [4], indirect=True)
def test_turns_in_an_array_are_no_waits_for_a_place(kept: Kept) -> None:
    kept.at(10, *(job(name, array=Member("x", at, 2, at_once=1)) for at, name in enumerate("ab")))
    kept.runs("a", 11, 4000)
    assert kept.waits() == (2, 0)


def test_a_pause_before_another_try_is_not_counted_and_neither_is_that_try(kept: Kept) -> None:
    kept.at(10, job("a", retries=1))
    kept.runs("a", 11, 100, code=1)
    kept.at(5000)
    kept.runs("a", 5001, 5010, attempt=2)
    assert kept.waits() == (1, 0)
    assert kept.told.delay_s == 0


def test_who_leaves_has_waited_as_long_as_its_deadline_let_it(kept: Kept) -> None:
    kept.at(10, job("a"), job("b", hold=True))
    kept.at(1000, ReleaseRequested("b"))
    kept.at(1100)
    assert kept.waits("cloud") == (1, 100)
    assert kept.told.delay_s == 100


def test_a_job_that_may_not_leave_costs_the_budget_nothing(kept: Kept) -> None:
    kept.at(10, job("a"), job("b", cloud="never"))
    kept.at(15, HoldRequested("b"))
    kept.at(20, ReleaseRequested("b"))
    kept.runs("a", 21, 40)
    assert kept.waits() == (2, 25)
    assert kept.told.delay_s == 0


@pytest.mark.parametrize("more", [{"cloud": "only"}, {"gpus": 0}])
def test_who_leaves_at_once_when_it_is_released_has_not_waited(kept: Kept, more: dict[str, Any]) -> None:
    kept.at(10, job("a", hold=True, **more))
    kept.at(5000, ReleaseRequested("a"))
    assert kept.waits("cloud") == (1, 0)
    assert kept.told.delay_s == 0


def test_a_step_stores_the_counters_of_its_own_queues_only(kept: Kept) -> None:
    kept.at(10, job("a", queue="one"))
    kept.store.set_fact("waits/one", "untouched")
    kept.at(11, job("b", queue="two"))
    kept.at(20, RunStarted("a", 1), RunEnded("a", 1, RunEnd.EXITED, 0))
    assert kept.store.fact("waits/one") == "untouched"
    assert kept.store.fact("waits/two") == {"cluster": {"counts": [0, 0, 1] + [0] * 10, "sum_s": 9.0}}
