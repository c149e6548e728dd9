"""The packing gap for pages and scrapes: proven once, remembered, and nobody is held up by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from starburst.app.packing_gap import GapQuestion
from starburst.core.model.events import CancelRequested, InstanceGone, NodesChanged, OffersChanged
from starburst.domain.money import Money
from starburst.web import packing_gap_cache
from starburst.web.packing_gap_cache import PackingGapCache
from tests.builders import job, offer
from tests.web.lively import NOON, Lively


@pytest.fixture
def lively(tmp_path: Path) -> Iterator[Lively]:
    """A job of two GPUs on a machine of four, at $1 an hour."""
    with Lively.begin(tmp_path) as it:
        it.tell(NodesChanged(()), OffersChanged((offer("four", 4, 1.0),)))
        it.submit(job("a", 2, cloud="only"))
        yield it


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[GapQuestion]:
    """Every question that was put; all are answered with a dollar, at once."""
    put: list[GapQuestion] = []

    def answer(question: GapQuestion) -> Money:
        put.append(question)
        return Money.of(1)

    monkeypatch.setattr(packing_gap_cache, "least", answer)
    return put


def ratio(watch: PackingGapCache) -> float | None:
    gap = watch.ask(None)
    return None if gap is None else gap.ratio


def until(found: Callable[[], bool]) -> None:
    """Threads go on."""
    assert any(found() or Event().wait(0.01) for _ in range(500))


def test_it_is_proven_once_while_tasks_and_offers_are_the_same(
    lively: Lively, asked: list[GapQuestion]
) -> None:
    watch = PackingGapCache(lively.app_context.store, wait_s=5)
    assert [ratio(watch) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert len(asked) == 1


def test_who_asks_does_not_wait_for_a_proof_that_takes_long(
    lively: Lively, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, put = Event(), []

    def slow(question: GapQuestion) -> Money:
        put.append(question)
        assert go.wait(10)
        return Money.of(1)

    monkeypatch.setattr(packing_gap_cache, "least", slow)
    watch = PackingGapCache(lively.app_context.store, wait_s=0.01)
    assert ratio(watch) is None
    assert ratio(watch) is None
    assert len(put) == 1, "one at a time"
    go.set()
    until(lambda: ratio(watch) == 0.0)


def test_until_another_proof_is_due_the_last_one_is_told(
    lively: Lively, asked: list[GapQuestion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing_gap_cache, "REST", 1e12)
    watch = PackingGapCache(lively.app_context.store, wait_s=5)
    assert ratio(watch) == 0.0
    lively.submit(job("b", 2, cloud="only"))
    assert ratio(watch) == 0.0
    assert len(asked) == 1
    monkeypatch.setattr(watch._proofs, "_next_at", 0.0)
    assert ratio(watch) == 1.0
    assert len(asked) == 2


def test_when_nothing_is_rented_any_more_nothing_is_told(lively: Lively, asked: list[GapQuestion]) -> None:
    watch = PackingGapCache(lively.app_context.store, wait_s=5)
    assert ratio(watch) == 0.0
    lively.tell(CancelRequested("a"))
    lively.tell(*(InstanceGone(machine, NOON, NOON) for machine in lively.scheduler.state.fleet.instances))
    assert ratio(watch) is None


def test_what_cannot_be_proven_is_not_told(lively: Lively, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_gap_cache, "least", lambda question: None)
    watch = PackingGapCache(lively.app_context.store, wait_s=5)
    assert ratio(watch) is None
