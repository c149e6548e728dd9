"""What the account may not rent is not tried, and the job that wants it says so."""

from __future__ import annotations

from dataclasses import replace

from starburst.core.model.events import OffersChanged
from starburst.core.views.explain import explain
from starburst.domain.cloud import Offer
from starburst.store import codec
from tests.builders import Desk, job, launches, offer

WHY = "p5 has 192 vCPUs, and AWS lets this account have 0 of such on-demand machines in us-east-1 (quota L-1)"
BARRED = offer("p5", 8, 1, barred=WHY)
DEARER = offer("p4", 8, 9)


def test_the_cheapest_that_may_be_rented_is_rented() -> None:
    assert launches(Desk(offers=(BARRED, DEARER)).submit(job("a", 8, cloud="only"))) == ["p4"]


def test_a_job_that_only_a_barred_offer_holds_waits_for_the_quota_and_says_so() -> None:
    desk = Desk(offers=(BARRED, offer("small", 1, 1)))
    assert launches(desk.submit(job("a", 8, cloud="only"))) == []
    assert (
        f"it should leave for the cloud, but {WHY}" in explain(desk.scheduler.state, desk["a"], str).sentence
    )
    assert launches(desk.tell(OffersChanged((replace(BARRED, barred=""),)))) == ["p5"]


def test_the_bar_is_stored() -> None:
    assert codec.decode(Offer, codec.encode(BARRED)) == BARRED
