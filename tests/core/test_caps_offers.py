"""Who waits for money leaves as soon as there is an offer that it can pay for."""

from __future__ import annotations

from starburst.core.model.events import OffersChanged
from starburst.core.views.explain import explain
from tests.builders import MINUTE, launches, offer
from tests.core.capped import cap, capped, cloud

CHEAP, DEAR = offer("cheap", 4, 1), offer("dear", 4, 50)


def test_it_leaves_as_soon_as_a_cheaper_offer_is_no_longer_paused() -> None:
    """The cheap one is sold out for five minutes; the dear one would pass the cap in every month."""
    desk = capped(cap(5, "month"), offers=(CHEAP, DEAR))
    desk.submit(cloud("a"))
    assert not launches(desk.no_launch("i-000001"))
    assert explain(desk.scheduler.state, desk["a"], lambda at: f"{at:g}").sentence == (
        "waits for a machine in the cloud; it should leave for the cloud, but of the $5.00 per month of all "
        "jobs $5.00 was left, and it may cost up to $52.50 by the end of that month; the next month begins "
        "at 1970-02-01 00:00 UTC; it tries again at 300; would then cost about $1.00 on cheap"
    )
    assert launches(desk.wait(5 * MINUTE)) == ["cheap"]


def test_a_pause_of_an_offer_that_costs_too_much_wakes_nobody() -> None:
    desk = capped(cap(5, "month"), offers=(CHEAP, DEAR))
    desk.submit(cloud("a", hours=100))
    desk.scheduler.state.fleet.pause("cheap", desk.now, 5 * MINUTE, wasted=False)
    desk.submit(cloud("b", hours=100))
    assert desk["b"].deadline == desk["a"].deadline > 30 * MINUTE


def test_it_leaves_as_soon_as_the_catalog_has_a_cheaper_offer() -> None:
    desk = capped(cap(5, "month"), offers=(DEAR,))
    desk.submit(cloud("a"))
    desk.wait(MINUTE)
    assert launches(desk.tell(OffersChanged((CHEAP,)))) == ["cheap"]
