"""What rivals would have paid: the same core, other settings."""

from __future__ import annotations

from starburst.clouds.catalog import LocalOffer
from starburst.core.model.settings import Settings
from starburst.demo.bills import replay, rivals
from starburst.domain.money import Money
from tests.builders import HOUR, arrival, job, node, offer

ONE_GPU = [node("n0", 1)]
OFFERS = [LocalOffer(offer("small", 1, 2), boot_s=600, setup_s=300)]
PLAIN = Settings(waiting="constant", factor=HOUR, offload_cpu_only=False, returns="never")


def test_a_job_that_leaves_pays_for_its_run_and_the_boot_of_its_machine() -> None:
    jobs = [arrival(job("a", 1), takes=2 * HOUR), arrival(job("b", 1), takes=3 * HOUR)]
    bill = replay("ours", PLAIN, jobs, ONE_GPU, OFFERS)
    assert (bill.cloud_cost, bill.offloaded) == (Money.of("6.50"), 1)
    assert bill.mean_jct_s == (2 * HOUR + (HOUR + 900 + 3 * HOUR)) / 2


def test_what_fits_within_its_wait_pays_nothing() -> None:
    jobs = [arrival(job("a", 1), takes=0.5 * HOUR), arrival(job("b", 1), takes=3 * HOUR)]
    assert replay("ours", PLAIN, jobs, ONE_GPU, OFFERS).cloud_cost == Money()


def test_the_rivals_wait_not_at_all_or_alike_and_never_bring_home() -> None:
    found = dict(rivals(Settings(waiting="compute", returns="if-it-pays")))
    assert [s.waiting for s in found.values()] == ["no-wait", "constant"]
    assert not any(s.out_of_order or s.returns != "never" for s in found.values())
