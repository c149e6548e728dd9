"""Who goes first under each order."""

from __future__ import annotations

import pytest

from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.ordering import ORDERS, Candidate

FIRST = Candidate(seq=1, runtime_s=300, deadline=900, priority=0)
SHORT = Candidate(seq=2, runtime_s=60, deadline=800, priority=0)
URGENT = Candidate(seq=3, runtime_s=500, deadline=100, priority=0)
GRAND = Candidate(seq=4, runtime_s=400, deadline=float("inf"), priority=7)
FAVOURED = Candidate(seq=5, runtime_s=400, deadline=950, priority=0, fair=-1)


@pytest.mark.parametrize(
    ("order", "first"),
    [("fifo", FIRST), ("sjf", SHORT), ("edf", URGENT), ("priority", GRAND), ("fair", FAVOURED)],
)
def test_each_order_has_its_favourite(order: str, first: Candidate) -> None:
    assert min((FAVOURED, GRAND, URGENT, SHORT, FIRST), key=ORDERS[order]) is first


def test_every_order_is_named_in_this_test() -> None:
    assert set(ORDERS) == {"fifo", "sjf", "edf", "priority", "fair"} | set(DISCIPLINES)
