"""The bill, however it is split, adds up."""

from __future__ import annotations

import pytest

from starburst.core.model.events import InstanceGone, InstanceReady, RunEnd, RunEnded, RunStarted
from starburst.domain.job import CloudChoice
from starburst.store.listings.costs import CostRow, CostSplit, costs
from starburst.store.store import Store
from tests.store.samples import started, step, submission

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def billed(store: Store) -> Store:
    """ada's machine ($3.60/h) ran for one hour on the first day; bob's has run since hour 24."""
    scheduler = started()
    ada = submission("a", cloud=CloudChoice.ONLY)
    bob = submission("b", user="bob", queue="fast", cloud=CloudChoice.ONLY)
    store.commit(step(scheduler, submissions=[ada]))
    store.commit(step(scheduler, [InstanceReady("i-000001", 0.0)], 0.0))
    store.commit(step(scheduler, [RunStarted("a", 1)], 0.0))
    store.commit(step(scheduler, [RunEnded("a", 1, RunEnd.EXITED, 0)], HOUR))
    store.commit(step(scheduler, [InstanceGone("i-000001", 0.0, HOUR)], HOUR))
    store.commit(step(scheduler, now=DAY, submissions=[bob]))
    store.commit(step(scheduler, [InstanceReady("i-000002", DAY)], DAY))
    return store


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("user", ["bob", "ada"]),
        ("queue", ["fast", "default"]),
        ("job", ["b", "a"]),
        ("day", ["1970-01-01", "1970-01-02"]),
    ],
)
def test_the_bill_is_split(billed: Store, by: str, names: list[str]) -> None:
    rows = {row.name: row for row in costs(billed, by, DAY + 2 * HOUR)}
    settled = CostRow(names[by != "day"], 3_600_000, 0)
    running = CostRow(names[by == "day"], 7_200_000, 7_200_000)
    assert list(rows) == names
    assert rows == {settled.name: settled, running.name: running}


def test_one_offer_has_one_line(billed: Store) -> None:
    assert costs(billed, "offer", DAY + 2 * HOUR) == [CostRow("small", 10_800_000, 7_200_000)]


@pytest.mark.parametrize("by", [split.value for split in CostSplit])
def test_every_split_has_the_same_sum(billed: Store, by: str) -> None:
    now = DAY + 1234.567
    assert sum(row.micro_usd for row in costs(billed, by, now)) == 3_600_000 + round(1234.567 * 1000)


@pytest.mark.parametrize("by", [split.value for split in CostSplit])
def test_what_has_cost_nothing_has_no_line(store: Store, by: str) -> None:
    store.commit(step(started(), submissions=[submission("a"), submission("b", cloud=CloudChoice.ONLY)]))
    assert costs(store, by, 10.0) == []


def test_a_split_that_is_none_is_named(store: Store) -> None:
    with pytest.raises(ValueError, match="split by user, queue, day, month, job, offer, not by 'moon'"):
        costs(store, "moon", 0.0)
