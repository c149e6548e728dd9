"""Who watches the steps of the scheduler, and how long they take, which outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from starburst.app.daemon.observers import KEEP_S, CommittedStep, StepTimes
from starburst.store import counters
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.app.life import a_world, living
from tests.app.virtual import run
from tests.builders import job


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "starburst.db") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "starburst.db"


@dataclass
class Witness:
    """Keeps every step; notes whether it was stored before."""

    store: Store
    steps: list[CommittedStep] = field(default_factory=list)
    unstored: list[int] = field(default_factory=list)
    closed: int = 0

    def stepped(self, step: CommittedStep) -> None:
        self.steps.append(step)
        known = {row.seq for row in queries.decisions(self.store)}
        self.unstored += [row.seq for row in step.changes.decisions if row.seq not in known]

    def close(self) -> None:
        self.closed += 1


def kept(store: Store) -> counters.StepDurations:
    with store.read() as conn:
        return counters.steps(conn)


def test_a_watcher_hears_of_every_step_once_it_is_stored(store: Store, path: Path) -> None:
    witness = Witness(store)

    async def main() -> None:
        async with living(path, a_world(2), observers=[witness]) as life:
            life.submit(job("a", 2), job("b", 2))
            await life.until(a="succeeded", b="succeeded")

    run(main())
    told = [row.seq for step in witness.steps for row in step.changes.decisions]
    assert told == [row.seq for row in queries.decisions(store)]
    assert not witness.unstored
    assert all(step.core_s > 0 and step.commit_s > 0 for step in witness.steps)
    assert {type(event).__name__ for step in witness.steps for event in step.events} >= {"JobSubmitted"}
    assert witness.closed == 1


def test_what_steps_took_is_kept_now_and_then_and_at_the_end_and_goes_on_from_there(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[str] = []
    witness, world, set_fact = Witness(store), a_world(8), Store.set_fact

    def counted(self: Store, key: str, value: object) -> None:
        writes.append(key)
        set_fact(self, key, value)

    async def live(*names: str) -> None:
        async with living(path, world, observers=[witness, StepTimes(store)]) as life:
            for name in names:
                life.submit(job(name, 2))
                await life.until(**{name: "running"})
            before = len(witness.steps)
            await asyncio.sleep(KEEP_S + 0.1)
            assert sum(kept(store).core.counts) >= before
            await life.until(**dict.fromkeys(names, "succeeded"))

    monkeypatch.setattr(Store, "set_fact", counted)
    run(live("a", "b", "c", "d"))
    first = len(witness.steps)
    assert sum(kept(store).core.counts) == sum(kept(store).commit.counts) == first
    assert writes == [counters.STEPS] * len(writes)
    assert 2 <= len(writes) < first / 2
    run(live("e"))
    took = kept(store)
    assert sum(took.core.counts) == len(witness.steps) > first
    assert took.core.sum_s == pytest.approx(sum(step.core_s for step in witness.steps))
    assert took.commit.sum_s == pytest.approx(sum(step.commit_s for step in witness.steps))


def test_a_crash_takes_back_nothing_that_was_kept(store: Store, path: Path) -> None:
    async def main() -> None:
        async with living(path, a_world(2), observers=[StepTimes(store)]) as life:
            life.submit(job("a", 2))
            await life.until(a="succeeded")
            await asyncio.sleep(KEEP_S)
            before = kept(store)
            crashed = StepTimes(store)  # one that dies before its time has come
            crashed.stepped(CommittedStep(0.0, 0.5, 0.5, [], life.controller.scheduler.state.changes, {}))
            assert kept(store) == before

    run(main())
    assert sum(kept(store).core.counts) > 0


def test_times_fall_into_their_classes() -> None:
    took = counters.DurationHistogram()
    for took_s in (0.0, 0.001, 0.0011, 10.0, 10.1):
        took.add(took_s)
    assert [took.counts[0], took.counts[1], took.counts[-2], took.counts[-1]] == [2, 1, 1, 1]
    assert took.sum_s == pytest.approx(20.1021)
