"""Every decision reads as one sentence, and every kind of decision is met."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from starburst.core.model.decisions import REASONS, WHY_OFFLOAD, Decision
from starburst.core.model.events import (
    CancelRequested,
    EnterRequested,
    HoldRequested,
    InstanceFailed,
    InstanceReady,
    InstanceUnfit,
    InstanceUnreachable,
    JobSubmitted,
    MachinesLost,
    ReleaseRequested,
    RequeueRequested,
    RunEnd,
    RunEnded,
    RunStalled,
    VolumesRuled,
)
from starburst.domain.job import Member
from starburst.domain.money import Money
from starburst.policy.caps import Cap
from tests.builders import HOUR, MINUTE, Desk, job, offer


def waits_and_runs() -> Desk:
    """Jobs that wait, start, pass others, finish, fail, are lost and cancelled."""
    desk = Desk(4, max_losses=1)
    desk.submit(job("a", 3, hours=1), job("b", 2, cpus=8, gib=32), job("c"), job("d", cloud="never"))
    desk.started("a", "c")
    desk.now = 0.5 * HOUR
    desk.lost("c")
    desk.lost("c")
    desk.ended("a")
    desk.cancel("b")
    desk.stopped("b")
    desk.ended("d", code=1)
    return desk


def waits_for_a_claim() -> Desk:
    """A job whose claim is not bound."""
    desk = Desk(4)
    desk.tell(JobSubmitted(job("a")), VolumesRuled("a", (), "waits for claim data: it is not bound"))
    return desk


def cloud_life() -> Desk:
    """Machines that do not come, come, are preempted, end by themselves and are given back."""
    offers = [offer("spot", 4, 1, spot=True), offer("solid", 4, 9.5), offer("odd", 4, None)]
    desk = Desk(offers=offers)
    desk.submit(job("a", 4, cloud="only"))
    desk.no_launch("i-000001")
    desk.now = 90
    desk.offload("a")
    desk.gone("i-000002", preempted=True)
    desk.no_launch("i-000003")
    desk.offload("a")
    desk.gone("i-000004")
    desk.no_launch("i-000005")
    desk.wait(300)
    desk.offload("a")
    desk.now += HOUR
    desk.ended("a")
    desk.gone("i-000006")
    return desk


def reasons_to_leave() -> Desk:
    """One job for every reason to leave."""
    desk = Desk(2, queue_limit=2, short_job_s=MINUTE, offers=[offer("big", 8, 3)])
    desk.submit(
        job("busy", 2),
        job("expires", max_wait_s=5),
        job("cpu-only", 0, cpus=1),
        job("short", hours=0.01),
        job("only", cloud="only"),
        job("too-big", 3),
        job("waits"),
        job("queue-full"),
    )
    desk.no_launch("i-000001")
    desk.wait(400)
    return desk


def no_hope() -> Desk:
    """One that could not start before its wait ends."""
    desk = Desk(2, hopeless="leave")
    desk.submit(job("busy", 2, hours=9))
    desk.started("busy")
    desk.submit(job("hopeless"))
    return desk


def dear() -> Desk:
    """One whose predicted delay is dearer than the cloud, and one that an exhausted account sends away."""
    desk = Desk(2, budget_mode="calibrated", budget_percent=1)
    desk.submit(job("busy", 2, hours=9))
    desk.started("busy")
    desk.submit(job("dear", hours=1))
    desk.submit(job("past", hours=0.5, cloud="never"), job("waits", hours=1, max_wait_s=99 * HOUR))
    desk.wait(HOUR)
    return desk


def dear_in_vain() -> Desk:
    """Its machine does not come up, and its wait is not over yet."""
    desk = Desk(2, budget_mode="calibrated", waiting="compute", factor=20)
    desk.submit(job("busy", 2, hours=9))
    desk.started("busy")
    desk.submit(job("dear", hours=0.1))
    desk.tell(InstanceFailed("i-000001", "broken"))
    return desk


def spare_room() -> Desk:
    """One that joins a machine that another needs for longer anyway."""
    desk = Desk(1, packer="eva")
    desk.submit(job("busy", hours=9), job("there", cloud="only", hours=9))
    desk.submit(job("joins", hours=1))
    return desk


def homecoming() -> Desk:
    """One that comes home into a slot and one that had better stay."""
    desk = Desk(2, waiting="no-wait", returns="if-it-pays", t_max_s=MINUTE)
    desk.submit(job("busy", 2), job("comes", hours=2), job("stays", hours=0.02))
    desk.started("busy")
    desk.offload("comes")
    desk.offload("stays")
    desk.ended("busy")
    desk.wait(MINUTE)
    desk.stopped("comes")
    return desk


def homecoming_of_star() -> Desk:
    """One that comes home to wait, first nothing, then β·r."""
    desk = Desk(2, waiting="star", factor=HOUR, returns="t-max", t_max_s=MINUTE)
    desk.submit(job("busy", 2), job("a"))
    desk.offload("a")
    desk.wait(MINUTE)
    desk.ended("a", RunEnd.STOPPED)
    return desk


def unfit() -> Desk:
    """A machine that answers something else than it should, then well, and takes no work."""
    desk = Desk(offers=[offer("big", 4, 3)], unreachable_s=MINUTE)
    desk.submit(job("a", cloud="only"))
    desk.ready("i-000001")
    desk.tell(InstanceUnreachable("i-000001", "its machine answered no JSON"))
    desk.heard_of("i-000001")
    desk.tell(InstanceUnfit("i-000001", "Connection refused"))
    desk.wait(MINUTE)
    desk.gone("i-000001")
    return desk


def cut_off() -> Desk:
    """Machines that are not heard of, one of them for too long; one that two jobs share and a third joins."""
    desk = Desk(offers=[offer("big", 4, 3)], packer="eva", unreachable_s=MINUTE)
    desk.submit(job("a", 2, cloud="only", hours=2), job("b", 1, cloud="only"))
    desk.offload("a")
    desk.submit(job("c", 1, cloud="only", hours=0.1))
    desk.cut_off("i-000001")
    desk.wait(30)
    desk.heard_of("i-000001")
    desk.cut_off("i-000001")
    desk.wait(MINUTE)
    desk.gone("i-000001")
    return desk


def moves() -> Desk:
    """One that moves, first to machines that do not come or are lost, at last to one that stays."""
    offers = [offer("big", 4, 3), offer("small", 1, 1)]
    desk = Desk(offers=offers, packer="eva", pack_period_s=10 * MINUTE)
    stays = job("b", hours=10, checkpoint=True, cloud="only")
    desk.submit(job("a", 3, cloud="only", hours=1), stays)
    desk.ready("i-000001")
    desk.started("a", "b")
    desk.now = HOUR
    desk.ended("a")
    desk.no_launch("i-000002")
    desk.wait(10 * MINUTE)
    desk.ready("i-000003")
    desk.gone("i-000003")
    desk.stopped("b")
    return desk


def held() -> Desk:
    """One that is held, released and not queued again, and one that runs already and is suspended."""
    desk = Desk(1)
    desk.submit(job("runs"), job("a"))
    desk.hold("runs", "a")
    desk.release("a")
    desk.requeue("a")
    desk.ended("runs", RunEnd.SUSPENDED)
    return desk


def steered() -> Desk:
    """One that runs when it is to be changed; one that is changed, and does not run when requeued."""
    desk = Desk(1)
    desk.submit(job("a"), job("b"))
    desk.edit("a", priority=1)
    desk.edit("b", priority=1, max_wait_s=60, runtime_estimate_s=90.5)
    desk.requeue("b")
    return desk


def retried() -> Desk:
    """One whose command fails and is run again."""
    desk = Desk(1)
    desk.submit(job("a", retries=1))
    desk.ended("a", code=3)
    return desk


def capped() -> Desk:
    """One that spends all that may be spent, one that must wait for more, a machine dearer than thought."""
    desk = Desk(caps=(Cap(Money.of(2), "day"),))
    desk.submit(job("a", cloud="only", hours=1), job("b", cloud="only", hours=1))
    desk.tell(InstanceReady("i-000001", desk.now, Money.of(1.5)))
    desk.started("a")
    desk.wait(2 * HOUR)
    return desk


def refused() -> Desk:
    """A cluster that starts nothing, then does again; one leaves meanwhile, one is held up for a while."""
    desk = Desk(8)
    desk.submit(job("leaves", max_wait_s=5), *(job(f"r{n}") for n in range(5)))
    for name in ("leaves", *(f"r{n}" for n in range(5))):
        desk.tell(RunEnded(name, 1, RunEnd.NOT_STARTED, message="no quota", outage=True))
    desk.wait(20)
    desk.started("r0")
    for why in ("the node n0 does not answer", ""):
        desk.tell(RunStalled("r0", desk["r0"].attempt, why))
    return desk


def followers() -> Desk:
    """One that comes after a job that fails, one after two however they end, one whose turn comes later."""
    desk = Desk(1)
    follows = job("b", after_ok=("a",)), job("c", after_ok=("x",), after_any=("a", "b"))
    desk.submit(job("a"), job("x", cloud="never"), *follows)
    desk.ended("a", code=3)
    desk.submit(*(job(f"m{n}", array=Member("m", n, 2, 1)) for n in range(2)))
    return desk


def bypassed() -> Desk:
    """One that waits without end and is passed too often."""
    desk = Desk(2, max_passes=1)
    desk.submit(job("a"), job("b"), job("large", 2, cloud="never"), job("c"))
    desk.ended("a")
    desk.ended("b")
    return desk


def in_part_lost() -> Desk:
    """An elastic gang loses one of its machines, then all but what it cannot do without."""
    desk = Desk(offers=[offer("big", 4, 3)])
    desk.submit(job("a", gang=(4, 4, 4), least_tasks=2, cloud="only"))
    desk.offload("a")
    desk.tell(MachinesLost("i-000001", ((1, 0.0),)))
    desk.stopped("a")
    desk.tell(MachinesLost("i-000001", ((1, 0.0), (2, 0.0))))
    return desk


@cache
def decisions() -> tuple[Decision, ...]:
    """All that was decided in the scenarios."""
    scenarios = (
        waits_for_a_claim,
        waits_and_runs,
        cloud_life,
        reasons_to_leave,
        no_hope,
        spare_room,
        dear,
        dear_in_vain,
        homecoming,
        homecoming_of_star,
        cut_off,
        unfit,
        moves,
        held,
        steered,
        steered_by_others,
        retried,
        refused,
        followers,
        bypassed,
        capped,
        in_part_lost,
    )
    return tuple(decision for scenario in scenarios for decision in scenario().scheduler.log)


@pytest.mark.parametrize("kind", REASONS)
def test_every_kind_of_decision_reads_as_a_sentence(kind: str) -> None:
    reasons = [d.reason for d in decisions() if d.kind == kind]
    assert reasons, f"no scenario decides {kind!r}"
    for reason in reasons:
        assert reason.strip() == reason != ""
        assert not re.search(r"[{}<>\n]|None|nan|\binf\b|Resources|Phase\.", reason), reason


@pytest.mark.parametrize("why", WHY_OFFLOAD)
def test_every_reason_to_leave_is_met(why: str) -> None:
    assert [d for d in decisions() if d.kind == "offloaded" and d.numbers["why"] == why]


def test_rows_are_numbered_without_a_gap_and_name_their_event() -> None:
    log = waits_and_runs().scheduler.log
    assert [row.seq for row in log] == list(range(1, len(log) + 1))
    assert {row.event for row in log} == {"JobSubmitted", "RunStarted", "RunEnded", "CancelRequested"}


@pytest.mark.parametrize(
    ("scenario", "subject", "kind", "reason"),
    [
        (waits_and_runs, "d", "waits", "as long as it takes (its starburst.io/cloud says never)"),
        (waits_and_runs, "b", "waits", "waits up to 1 h for 2 GPUs, 8 CPUs, 32 GiB on the cluster"),
        (waits_and_runs, "a", "placed", "starts on n0: 3 GPUs free there after 0 s"),
        (waits_and_runs, "c", "placed", "passed b, which does not fit yet"),
        (waits_and_runs, "a", "succeeded", "finished after 30 min"),
        (waits_and_runs, "d", "failed", "its command ended with exit code 1"),
        (waits_and_runs, "c", "failed", "its runs were lost 2 times"),
        (waits_and_runs, "b", "stopping", "told to stop, has 30 s to save its work: its user cancelled it"),
        (cloud_life, "i-000001", "launch-failed", "spot is left alone for 5 min"),
        (cloud_life, "i-000002", "launched", "rented solid at $9.50/h for a"),
        (cloud_life, "i-000002", "ready", "took 90 s to come up"),
        (cloud_life, "i-000002", "gone", "preempted by the cloud after 0 s"),
        (cloud_life, "i-000006", "gone", "given back after 1 h; bill $1.00"),
        (cloud_life, "a", "started", "runs on i-000006 (attempt 3)"),
        (
            reasons_to_leave,
            "expires",
            "offloaded",
            "no room on the cluster for 5 min; rents big",
        ),
        (homecoming_of_star, "a", "waits", "Star-Wait: 1 GPU × β 1 h"),
        (homecoming_of_star, "a", "returning", "it queues again"),
    ],
)
def test_what_a_user_reads(scenario: Callable[[], Desk], subject: str, kind: str, reason: str) -> None:
    assert reason in scenario().why(subject, kind)


def steered_by_others() -> Desk:
    """Jobs of a user that an operator holds, queues again and cancels."""
    desk = Desk(1)
    desk.submit(job("a", user="ada"), job("b", user="ada"))
    desk.started("a")
    desk.tell(HoldRequested("b", by="root"))
    desk.tell(ReleaseRequested("b", by="ada"))
    desk.tell(CancelRequested("b", by="root"))
    desk.tell(EnterRequested("a", by="ada"), EnterRequested("a", by="root"))
    desk.tell(RequeueRequested("a", by="root"))
    desk.stopped("a")
    desk.started("a")
    desk.tell(CancelRequested("a", by="root"))
    desk.stopped("a")
    return desk


def test_who_steers_the_job_of_another_is_named_and_its_own_user_is_not() -> None:
    log = steered_by_others().scheduler.log
    reasons = [(row.subject, row.reason) for row in log if row.kind in ("asked", "released", "cancelled")]
    assert reasons == [
        ("b", "root asked to hold it"),
        ("b", "released after 0 s: its wait begins now"),
        ("b", "cancelled by root"),
        ("a", "root asked to enter it"),
        ("a", "root asked to requeue it"),
        ("a", "cancelled by root"),
    ]
