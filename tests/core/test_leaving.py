"""Which jobs leave for the cloud, when, and what happens to those that cannot."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from starburst.core.model.actions import StartRun
from starburst.core.model.events import JobSubmitted, NodesChanged, OffersChanged
from starburst.core.model.phases import LeaveReason
from starburst.domain.cloud import OfferRules
from starburst.domain.job import Site
from starburst.domain.money import Money
from tests.builders import HOUR, MINUTE, Desk, job, launches, node, offer, starts


def full(**settings: Any) -> Desk:
    """One node of 4 GPUs, all in use by "busy", and small machines for rent."""
    desk = Desk(4, **settings)
    desk.submit(job("busy", 4))
    desk.started("busy")
    return desk


def test_compute_wait_of_two_gpus_for_an_hour_and_a_half_at_alpha_008_is_14_minutes_24() -> None:
    desk = full(waiting="compute", factor=0.08)
    desk.submit(job("a", 2, hours=1.5))
    assert desk["a"].deadline == pytest.approx(864)
    assert desk.why("a", "waits") == (
        "waits up to 14.4 min for 2 GPUs on the cluster (Compute-Wait: 2 GPU × 1.5 h × α 0.08)"
    )
    assert not desk.wait(863)
    assert launches(desk.wait(1)) == ["small"]
    assert desk.why("a", "offloaded") == (
        "leaves for the cloud: no room on the cluster for 14.4 min; rents small at $1.00/h"
    )


def test_no_wait_of_the_policy_slows_a_job_down_by_more_than_the_bound() -> None:
    """Its user's word stands all the same."""
    desk = full(waiting="constant", factor=10 * HOUR, max_slowdown=3.0)
    said = job("said", 1, hours=1, max_wait_s=9 * HOUR)
    desk.submit(job("short", 1, hours=0.5), job("long", 1, hours=8), said)
    assert [desk[name].deadline for name in ("short", "long", "said")] == [HOUR, 10 * HOUR, 9 * HOUR]
    assert desk.why("short", "waits") == (
        "waits up to 1 h for 1 GPU on the cluster (Constant-Wait: C 10 h, but at most 1 h)"
    )
    assert launches(desk.wait(HOUR)) == ["small"]


def test_the_factor_follows_from_the_budget_and_the_jobs_seen() -> None:
    """α = P/(100·E[r]): 20 jobs of one GPU are believed at first, 20 of three GPUs come."""
    desk = Desk(waiting="compute", factor=None, budget_percent=10)
    assert desk.scheduler.state.factor == pytest.approx(0.1)
    desk.submit(*(job(f"j{n}", 3) for n in range(20)))
    assert desk.scheduler.state.factor == pytest.approx(0.05)


def test_without_an_estimate_a_job_counts_as_long_as_past_jobs_of_its_size_on_average() -> None:
    """20 jobs of 1 h are believed at first; 20 jobs of 1 GPU and 3 h are seen: 2 h on average of all.

    Of 1 GPU that mean counts as 20 jobs, so 2.5 h are assumed; of 4 GPUs nothing else is known.
    """
    desk = Desk(64, waiting="runtime", factor=0.5)
    names = [f"j{n}" for n in range(20)]
    desk.submit(*(job(name) for name in names))
    desk.started(*names)
    desk.now = 3 * HOUR
    desk.tell(*(desk.end_of(name) for name in names))
    desk.submit(job("a"), job("b", 4))
    waits = [desk.log(name, "waits")[0].numbers for name in "ab"]
    assert [wait["wait_s"] for wait in waits] == pytest.approx([1.25 * HOUR, HOUR])
    assert {wait["estimated_by"] for wait in waits} == {"mean of past jobs of its size"}


@pytest.mark.parametrize(
    ("estimate_h", "limit_h", "taken_h", "by"),
    [
        (None, 0.5, 0.5, "time limit"),
        (None, 2.0, 1.0, "mean of past jobs of its size"),
        (3.0, 0.5, 0.5, "time limit"),
        (0.25, 0.5, 0.25, "user"),
    ],
)
def test_no_job_is_taken_to_run_for_longer_than_its_time_limit(
    estimate_h: float | None, limit_h: float, taken_h: float, by: str
) -> None:
    desk = Desk(1, waiting="runtime", factor=0.5)
    estimate_s = None if estimate_h is None else estimate_h * HOUR
    desk.submit(job("busy"), replace(job("a"), runtime_estimate_s=estimate_s, time_limit_s=limit_h * HOUR))
    waits = desk.log("a", "waits")[0].numbers
    assert (waits["wait_s"], waits["estimated_by"]) == (pytest.approx(taken_h * HOUR / 2), by)


def test_short_jobs_leave_at_once_even_past_free_nodes() -> None:
    desk = Desk(4, short_job_s=15 * MINUTE)
    desk.submit(job("short", hours=0.2), job("long", hours=0.25))
    assert (desk.phase("short"), desk.phase("long")) == ("offloading", "starting")
    assert "it is shorter than 15 min" in desk.why("short", "offloaded")


def test_jobs_without_gpus_leave_at_once_unless_told_otherwise() -> None:
    desk = Desk(4)
    desk.submit(job("a", 0, cpus=2))
    assert desk.phase("a") == "offloading"
    assert "it needs no GPU" in desk.why("a", "offloaded")
    desk = Desk(4, offload_cpu_only=False)
    assert starts(desk.submit(job("a", 0, cpus=2))) == ["a"]


def test_a_job_that_no_node_could_ever_hold_leaves_at_once() -> None:
    desk = Desk(4, offers=[offer("big", 8, 9)])
    desk.submit(job("a", 5))
    assert desk.phase("a") == "offloading"
    assert "no node or set of nodes of the cluster could ever hold 5 GPUs" in desk.why("a", "offloaded")


def test_a_cordoned_node_could_still_hold_it() -> None:
    desk = Desk()
    desk.tell(NodesChanged((node("n0", 4, schedulable=False),)))
    desk.submit(job("a", 4))
    assert desk.phase("a") == "queued"
    assert starts(desk.tell(NodesChanged((node("n0", 4),)))) == ["a"]


def test_a_cluster_not_yet_seen_turns_nobody_away() -> None:
    desk = Desk()
    desk.submit(job("a", 400))
    assert desk.phase("a") == "queued"


def test_cloud_only_goes_there_past_free_nodes() -> None:
    desk = Desk(4)
    assert launches(desk.submit(job("a", cloud="only"))) == ["small"]
    assert "its starburst.io/cloud says only" in desk.why("a", "offloaded")


def test_cloud_never_waits_as_long_as_it_takes_whatever_the_policy_says() -> None:
    desk = full(waiting="no-wait", short_job_s=HOUR, queue_limit=0)
    desk.submit(job("a", hours=0.1, cloud="never"), job("b", 9, cloud="never"))
    desk.wait(1000 * HOUR)
    assert (desk.phase("a"), desk.phase("b")) == ("queued", "queued")
    assert desk["a"].deadline == inf
    assert "as long as it takes" in desk.why("a", "waits")


@pytest.mark.parametrize("policy", ["no-wait", "constant", "compute", "infinite"])
def test_a_jobs_own_max_wait_beats_the_policy(policy: str) -> None:
    desk = full(waiting=policy)
    desk.submit(job("a", max_wait_s=600))
    desk.wait(599)
    assert desk.phase("a") == "queued"
    desk.wait(1)
    assert desk.phase("a") == "offloading"


def test_the_queue_limit_sends_off_the_last_jobs() -> None:
    desk = full(queue_limit=2)
    desk.submit(*(job(name) for name in "abcd"))
    assert [desk.phase(name) for name in "abcd"] == ["queued", "queued", "offloading", "offloading"]
    assert "the queue is longer than 2 and it was last" in desk.why("d", "offloaded")


def test_the_last_is_whom_the_order_puts_last() -> None:
    desk = full(queue_limit=1, order="sjf")
    desk.submit(job("long", hours=2), job("short", hours=1))
    assert (desk.phase("long"), desk.phase("short")) == ("offloading", "queued")


def test_jobs_that_may_not_leave_count_for_the_limit_but_are_passed_over() -> None:
    desk = full(queue_limit=1)
    desk.submit(job("a"), job("b", cloud="never"), job("c", cloud="never"))
    assert [desk.phase(name) for name in "abc"] == ["offloading", "queued", "queued"]


def test_without_offers_a_job_waits_on_and_leaves_when_there_is_one() -> None:
    desk = full(offers=[])
    desk.submit(job("a"))
    desk.wait(2 * HOUR)
    assert desk.phase("a") == "queued"
    assert desk.why("a", "no-offer").endswith("but the cloud has no offers")
    assert launches(desk.tell(OffersChanged((offer("tiny", 1, 2),)))) == ["tiny"]


def test_without_offers_a_job_still_takes_room_on_the_cluster() -> None:
    desk = full(offers=[])
    desk.submit(job("a"))
    desk.wait(2 * HOUR)
    assert starts(desk.ended("busy")) == ["a"]


def test_a_job_that_fits_no_offer_says_what_is_lacking_once() -> None:
    desk = full(offers=[offer("tiny", 1)])
    desk.submit(job("a", 4))
    desk.wait(HOUR)
    desk.tell(OffersChanged((offer("tiny", 1), offer("tiny2", 1))))
    assert desk.why("a", "no-offer").endswith("but no offer has 4 GPUs (the largest has 1)")
    assert len(desk.log("a", "no-offer")) == 1


def test_a_cloud_only_job_without_an_offer_stays_out_of_the_clusters_queue() -> None:
    desk = Desk(4, offers=[])
    assert not desk.submit(job("a", cloud="only"))
    assert desk.phase("a") == "queued"
    assert launches(desk.tell(OffersChanged((offer(),)))) == ["small"]


def test_a_full_queue_without_offers_costs_nobody_its_wait() -> None:
    desk = full(queue_limit=0, offers=[])
    desk.submit(job("a"))
    assert desk["a"].deadline == HOUR
    desk.tell(OffersChanged((offer(),)))
    assert "the queue is longer than 0" in desk.why("a", "offloaded")


def test_an_offer_that_is_sold_out_is_left_alone_while_the_next_is_asked() -> None:
    desk = Desk(offers=[offer("cheap", dollars=1), offer("dear", dollars=2)], offer_pause_s=300)
    desk.submit(job("a", cloud="only"))
    assert launches(desk.no_launch("i-000001")) == ["dear"]
    assert "its first machine did not come up" in desk.why("a", "offloaded")
    assert launches(desk.submit(job("b", cloud="only"))) == ["dear"]
    desk.wait(300)
    assert launches(desk.submit(job("c", cloud="only"))) == ["cheap"]


def test_when_all_offers_are_sold_out_a_job_tries_again_after_the_pause() -> None:
    desk = Desk(offers=[offer()], offer_pause_s=300)
    desk.submit(job("a", cloud="only"))
    desk.no_launch("i-000001")
    assert desk.why("a", "no-offer").endswith("every offer that holds it is paused after a failed launch")
    assert not desk.wait(299)
    assert launches(desk.wait(1)) == ["small"]


@pytest.mark.parametrize("packer", ["none", "stratus", "eva"])
def test_a_zone_that_is_sold_out_is_left_alone_while_the_other_is_asked(packer: str) -> None:
    """A job that names zones is given the offers of single zones, which the catalog does not list apart."""
    zones = (("us-a", "us-a/x"), ("us-b", "us-b/x"))
    desk = Desk(offers=(offer("us", 4, 1.0, cloud="aws", region="us", zones=zones),), packer=packer)
    rules = OfferRules("aws", "us", "us-a", elsewhere=(("aws", "us", "us-b"),))
    first = launches(desk.submit(job("a", 4, cloud="only", offer_rules=rules)))
    second = launches(desk.no_launch(desk.instances[-1]))
    assert sorted([*first, *second]) == ["us-a/x", "us-b/x"]
    assert launches(desk.no_launch(desk.instances[-1])) == []
    assert desk["a"].deadline == desk.scheduler.state.settings.offer_pause_s
    assert launches(desk.wait(desk["a"].deadline)) != []


def test_a_cloud_only_job_does_not_take_room_on_the_cluster_after_a_failed_launch() -> None:
    desk = Desk(4, pack_window_s=60.0)
    desk.submit(job("x", 4, cloud="never"), job("a", 4, cloud="only"))
    desk.wait(60)
    desk.no_launch(desk.instances[-1])
    desk.wait(desk["a"].deadline - desk.now)
    desk.ended("x")
    assert (desk.phase("a"), desk.nodes_of("a")) == ("offloading", [])
    assert desk["a"].leaving is LeaveReason.ONLY


def test_a_job_that_cannot_leave_after_all_takes_the_room_that_there_is() -> None:
    """Its pack window ends with no offer left, and nothing else happens."""
    desk = Desk(4, pack_window_s=60.0, short_job_s=600.0)
    desk.submit(job("a", 2, hours=0.1))
    desk.wait(30)
    desk.tell(OffersChanged(()))
    desk.wait(30)
    assert desk.nodes_of("a") == ["n0"]


def test_an_unknown_price_is_rented_last_and_billed_as_the_dearest() -> None:
    desk = Desk(offers=[offer("unknown", 8, None), offer("known", 2, 7)])
    desk.submit(job("a", 2, cloud="only"), job("b", 8, cloud="only"))
    assert launches(desk.actions) == ["known", "unknown"]
    assert desk.scheduler.state.fleet.instances["i-000002"].rate == Money.of(7)


def test_a_machine_is_billed_from_its_launch_until_it_is_confirmed_gone() -> None:
    desk = Desk(offers=[offer(dollars=3)])
    desk.submit(job("a", cloud="only"))
    (start,) = desk.ready("i-000001")
    assert start == StartRun("a", 1, Site.CLOUD, desk["a"].slots)
    desk.started("a")
    desk.now = HOUR
    desk.ended("a")
    assert desk["a"].cloud_micro_usd == 0
    desk.now = 1.5 * HOUR
    desk.gone("i-000001")
    assert desk["a"].cloud_micro_usd == 4_500_000
    assert desk.why("i-000001", "gone") == "given back after 1.5 h; bill $4.50"
    assert desk.scheduler.state.fleet.settled == Money.of("4.5")


def test_a_job_is_known_by_its_id_and_comes_once() -> None:
    desk = Desk(4)
    assert starts(desk.submit(job("a"))) == ["a"]
    assert not desk.tell(JobSubmitted(job("a")))


def test_gpu_types_and_labels_choose_nodes() -> None:
    desk = Desk()
    desk.tell(
        NodesChanged(
            (
                node("v", 4, gpu_type="V100"),
                node("a", 4, gpu_type="A100"),
                node("ssd", 4, gpu_type="V100", labels=(("disk", "ssd"),)),
            )
        )
    )
    desk.submit(job("typed", gpu_type="A100"), job("picky", node_selector=(("disk", "ssd"),)))
    assert desk.nodes_of("typed") == ["a"]
    assert desk.nodes_of("picky") == ["ssd"]
