"""What a colleague would say about a job: whole sentences, word for word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starburst.core.model.events import OffersChanged, RunEnd
from starburst.core.views.explain import explain, foretell, ordinal
from starburst.domain.money import Money
from tests.builders import HOUR, MINUTE, Desk, job, offer, split_gang

P3 = offer("p3.2xlarge", 2, 2.04, gpu_type="V100")
P3_BIG = offer("p3.8xlarge", 4, 12.24)


def clock(at):
    """The scheduler's day begins at midnight."""
    minutes = round(at / 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"


def said(desk, name):
    """The explanation of a job at the desk's time."""
    desk.scheduler.state.now = desk.now
    return explain(desk.scheduler.state, desk[name], clock)


def busy(*gpus, offers=(P3, P3_BIG), **settings):
    """A cluster whose every node is taken by one job, at noon."""
    desk = Desk(*gpus, offers=offers, **settings)
    desk.now = 12 * HOUR
    for rank, number in enumerate(gpus):
        desk.submit(job(f"busy{rank}", number, cloud="never"))
    return desk


def test_a_wait_with_a_limit_names_need_end_sum_place_and_price():
    desk = busy(4, waiting="compute", factor=0.08)
    desk.submit(job("x", 2), job("y", 2), job("z", 2, hours=1.5))
    told = said(desk, "z")
    assert told.sentence == (
        "waits for 2 GPUs on the cluster until 12:14 (Compute-Wait: 2 GPU × 1.5 h × α 0.08 = 14.4 min); "
        "3rd in line for 2 GPUs; would then cost about $3.06 on p3.2xlarge"
    )
    assert (told.phase, told.position, told.cloud_cost, told.offers) == (
        "queued",
        3,
        Money.of("3.06"),
        ("p3.2xlarge",),
    )
    assert told.leaves_at == pytest.approx(12 * HOUR + 0.08 * 2 * 1.5 * HOUR)


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (
            job("a", 1, cpus=4, gib=16, max_wait_s=5 * MINUTE),
            "waits for 1 GPU, 4 CPUs, 16 GiB on the cluster until 12:05 (its starburst.io/max-wait = 5 min); "
            "1st in line for 1 GPU; would then cost about $2.04 on p3.2xlarge",
        ),
        (
            job("a", 1, cloud="never"),
            "waits for 1 GPU on the cluster as long as it takes (its starburst.io/cloud says never); "
            "1st in line for 1 GPU",
        ),
        (
            job("a", 8, cloud="never"),
            "waits for 8 GPUs on the cluster as long as it takes (its starburst.io/cloud says never); "
            "1st in line for 8 GPUs; the cluster could not hold it even if it were empty",
        ),
        (
            job("a", gang=(4, 4), max_wait_s=HOUR),
            "waits for 8 GPUs (2 × 4 GPUs) on the cluster until 13:00 (its starburst.io/max-wait = 1 h); "
            "1st in line for 8 GPUs; would then cost about $24.48 on 2 × p3.8xlarge",
        ),
        (
            job("a", gang=(1, 4), max_wait_s=HOUR),
            "waits for 5 GPUs (1 GPU + 4 GPUs) on the cluster until 13:00 (its starburst.io/max-wait = 1 h); "
            "1st in line for 5 GPUs; would then cost about $24.48 on 2 × p3.8xlarge",
        ),
        (
            job("a", 1, gpu_type="H100"),
            "waits for 1 H100 GPU, which no site has: the cluster could not hold it even if empty, "
            "and no offer has H100 GPUs",
        ),
        (
            job("a", 4, node_selector=(("disk", "ssd"),), gpu_type="H100", cloud="only"),
            "waits for a machine in the cloud; it should leave for the cloud, but no offer has H100 GPUs",
        ),
        (
            job("a", 0, cpus=100),
            "waits for 100 CPUs, which no site has: the cluster could not hold it even if empty, "
            "and no offer has 100 CPUs (the largest has 64)",
        ),
    ],
)
def test_waiting(item, sentence):
    desk = busy(4, 4)
    desk.submit(item)
    assert said(desk, "a").sentence == sentence


def test_a_wait_that_ends_in_no_offer_says_so_before_and_after():
    desk = busy(8, offers=(P3,))
    desk.submit(job("a", 8))
    told = said(desk, "a").sentence
    assert "until 13:00 (Constant-Wait: C 1 h = 1 h); 1st in line" in told
    assert "; then it waits on, since no offer has 8 GPUs" in told
    desk.wait(HOUR)
    told = said(desk, "a").sentence
    assert "though its wait is over (Constant-Wait: C 1 h = 1 h); 1st in line" in told
    assert "; it should leave for the cloud, but no offer has 8 GPUs" in told


def test_without_any_offers_a_job_waits_for_the_cluster_and_says_so_once():
    desk = busy(4, offers=())
    desk.submit(job("a"), job("never", cloud="never"))
    waits = "waits for 1 GPU on the cluster as long as it takes"
    for _ in range(2):
        told = said(desk, "a")
        assert told.sentence == f"{waits} (the cloud has no offers); 1st in line for 1 GPU"
        assert told.leaves_at is None
        never = said(desk, "never").sentence
        assert never == f"{waits} (its starburst.io/cloud says never); 2nd in line for 1 GPU"
        desk.wait(HOUR)


def test_a_job_without_gpus_that_no_offer_holds():
    desk = Desk(0, offers=())
    desk.submit(job("first", 0, cpus=60), job("a", 0, cpus=8, gib=32))
    assert said(desk, "a").sentence == (
        "waits for 8 CPUs, 32 GiB on the cluster; 1st in line for 8 CPUs, 32 GiB; "
        "it should leave for the cloud, but the cloud has no offers"
    )


def test_a_sold_out_offer_is_tried_again():
    desk = busy(2, offers=[P3])
    desk.submit(job("a", 2, max_wait_s=0))
    desk.no_launch("i-000001")
    told = said(desk, "a")
    assert told.sentence == (
        "waits for 2 GPUs on the cluster, though its wait is over (its starburst.io/max-wait = 0 s); "
        "1st in line for 2 GPUs; it should leave for the cloud, but every offer that holds it is paused "
        "after a failed launch; it tries again at 12:05; would then cost about $2.04 on p3.2xlarge"
    )
    assert told.leaves_at == 12 * HOUR + 5 * MINUTE


def test_an_unknown_price_is_said_to_be_a_guess():
    desk = busy(4, offers=[offer("odd", 4, None), offer("small", 1, 9)])
    desk.submit(job("a", 4))
    assert said(desk, "a").sentence.endswith(
        "would then cost about $9.00 on odd, whose price is unknown and taken for the dearest"
    )


def test_without_a_limit_the_cloud_is_only_a_price():
    desk = busy(4, waiting="infinite")
    desk.submit(job("a"))
    assert said(desk, "a").sentence == (
        "waits for 1 GPU on the cluster as long as it takes (Infinite-Wait: waits until there is room); "
        "1st in line for 1 GPU; the cloud would cost about $2.04 on p3.2xlarge"
    )


def test_a_run_on_the_cluster_from_start_to_end():
    desk = busy(4)
    desk.submit(job("a"))
    desk.now += 10 * MINUTE
    desk.ended("busy0")
    assert said(desk, "a").sentence == (
        "is being started on the cluster on n0, 10 min after it was submitted"
    )
    desk.started("a")
    assert said(desk, "a").sentence == "runs since 12:10 on the cluster on n0, 10 min after it was submitted"
    desk.cancel("a")
    assert said(desk, "a").sentence == (
        "is being stopped on n0: its user cancelled it; it has 30 s to save its work"
    )
    desk.stopped("a")
    assert said(desk, "a").sentence == "cancelled by its user at 12:10"


def test_a_run_in_the_cloud_from_the_launch_to_the_bill():
    desk = busy(4)
    desk.submit(job("a", 2, cloud="only"))
    assert said(desk, "a").sentence == (
        "leaves for the cloud: i-000001 (p3.2xlarge, $2.04/h), requested at 12:00, is coming up"
        ", expected at about 12:03"
    )
    desk.ready("i-000001")
    desk.started("a")
    desk.now += HOUR
    assert said(desk, "a").sentence == (
        "runs since 12:00 in the cloud on i-000001 (p3.2xlarge); $2.04 so far at $2.04/h"
    )
    desk.ended("a", code=3)
    desk.gone("i-000001")
    assert said(desk, "a").sentence == (
        "failed at 13:00: its command ended with exit code 3; its cloud bill is $2.04"
    )


def test_a_machine_is_expected_when_its_offer_says_or_three_minutes_after_it_was_requested():
    desk = Desk(offers=[replace(P3, ready_s=120.0)])
    desk.submit(job("a", cloud="only"))
    assert said(desk, "a").sentence.endswith("requested at 00:00, is coming up, expected at about 00:02")
    desk.now += 121  # it is late: that time says nothing any more
    assert said(desk, "a").sentence.endswith("requested at 00:00, is coming up")


def test_the_machines_of_a_gang_are_all_named():
    desk = Desk(offers=[P3])
    desk.submit(job("a", gang=(2, 2), cloud="only"))
    assert said(desk, "a").sentence == (
        "leaves for the cloud: i-000001 (2 × p3.2xlarge, $4.08/h), requested at 00:00, is coming up"
        ", expected at about 00:03"
    )


def test_the_way_home():
    desk = busy(4, returns="if-it-pays", t_max_s=15 * MINUTE, waiting="no-wait")
    desk.submit(job("a", 2, hours=5))
    desk.offload("a")
    where = "runs since 12:00 in the cloud on i-000001 (p3.2xlarge)"
    assert said(desk, "a").sentence == (
        f"{where}; $0.00 so far at $2.04/h; may come home from 12:15 on, if that pays and there is room"
    )
    desk.wait(20 * MINUTE)
    assert said(desk, "a").sentence == (
        f"{where}; $0.68 so far at $2.04/h; comes home as soon as there is room for 2 GPUs on the cluster"
    )
    desk.ended("busy0")
    assert said(desk, "a").sentence == (
        "is being stopped on i-000001: it comes home from the cloud; it has 30 s to save its work"
    )
    desk.stopped("a")
    desk.started("a")
    assert said(desk, "a").sentence == "runs since 12:20 on the cluster on n0, home from the cloud"


def test_a_gang_that_lost_a_machine_is_stopped():
    desk = Desk(offers=[P3])
    desk.submit(job("a", gang=(2, 2), cloud="only"))
    desk.offload("a")
    split_gang(desk, "a")
    desk.gone("i-000001", preempted=True)
    assert said(desk, "a").sentence == (
        "is being stopped on i-000001, i-000002: a machine of its gang is gone"
    )


def test_a_job_whose_runs_are_lost_waits_again():
    desk = Desk(4, max_losses=0)
    desk.submit(job("a"))
    desk.started("a")
    desk.ended("a", RunEnd.LOST)
    assert said(desk, "a").sentence.startswith("failed at 00:00: its runs were lost 1 times")


def test_foretelling_a_wait_gives_the_answer_that_explain_gives_afterwards():
    desk, twin = busy(4), busy(4)
    item = job("a", 2, hours=1.5)
    (told,) = foretell(twin.scheduler, [item], clock)
    desk.submit(item)
    assert told == said(desk, "a")


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (job("a", 2), "would start at once on the cluster on n0"),
        (job("a", gang=(4, 4)), "would start at once on the cluster on n0, n1"),
        (
            job("a", 0, cpus=2),
            "would leave for the cloud at once: it needs no GPU, and the cluster's nodes are kept for jobs "
            "that do; would cost about $2.04 on p3.2xlarge",
        ),
        (
            job("a", 2, cloud="only", hours=2),
            "would leave for the cloud at once: its starburst.io/cloud says only; "
            "would cost about $4.08 on p3.2xlarge",
        ),
        (
            job("a", gang=(4, 4, 4)),
            "would leave for the cloud at once: no node or set of nodes of the cluster could ever hold "
            "12 GPUs; would cost about $36.72 on 3 × p3.8xlarge",
        ),
    ],
)
def test_foretelling_what_would_happen_at_once(item, sentence):
    desk = Desk(4, 4, offers=[P3, P3_BIG])
    (told,) = foretell(desk.scheduler, [item], clock)
    assert told.sentence == sentence


def test_jobs_of_one_submission_are_foretold_together():
    desk = Desk(2, offers=[P3])
    first, second = foretell(desk.scheduler, [job("a", 2), job("b", 2)], clock)
    assert first.sentence == "would start at once on the cluster on n0"
    assert second.sentence.startswith("waits for 2 GPUs on the cluster until 01:00")


def test_new_offers_end_the_want_of_them():
    desk = busy(4, offers=())
    desk.submit(job("a", max_wait_s=0))
    desk.tell(OffersChanged((P3,)))
    assert said(desk, "a").sentence.startswith("leaves for the cloud: i-000001 (p3.2xlarge")


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (113, "113th"),
    ],
)
def test_ordinals(n, text):
    assert ordinal(n) == text
