"""How long machines take to come up is learnt from launches, and weighs what is decided later."""

from __future__ import annotations

import json

import pytest

from starburst.core.model.events import InstanceReady, SiteSynced
from starburst.core.model.throughput import Speeds
from starburst.core.views.explain import explain
from starburst.core.views.restoring import restore
from starburst.domain.cloud import Offer
from starburst.domain.job import Site
from starburst.policy.boot_times import UNKNOWN_S
from tests.builders import HOUR, MINUTE, Desk, job, launches, offer, snapshot

BIG = offer("big", 4, 3, ready_s=100.0)
SMALL = offer("small", 1, 1, ready_s=100.0)


def booted(desk: Desk, seconds: float, times: int = 3, gpus: int = 1) -> None:
    """So many machines come up after these seconds each, do an hour's work and are given back."""
    for n in range(times):
        name = f"boots-{gpus}-{seconds:g}-{n}"
        desk.submit(job(name, gpus, cloud="only", hours=1))
        desk.wait(seconds)
        desk.offload(name)
        desk.ended(name)
        for instance in desk.instances:
            desk.gone(instance)


def expected_s(desk: Desk, of: Offer = SMALL) -> float:
    return desk.scheduler.state.fleet.boot_s(of)


def test_launches_that_were_seen_take_over_from_what_the_offer_says() -> None:
    desk = Desk(offers=[SMALL, BIG])
    booted(desk, 400.0, times=2)
    assert expected_s(desk) == 100.0
    booted(desk, 420.0, times=1)
    assert expected_s(desk) == 400.0
    desk.submit(job("a", cloud="only"))
    assert "expected at about 1620.0" in explain(desk.scheduler.state, desk["a"], str).sentence, (
        "1220 s + 400"
    )


def test_they_are_stored_and_read_again_and_a_store_without_them_opens() -> None:
    desk = Desk(offers=[SMALL])
    booted(desk, 400.0)
    stored = snapshot(desk.scheduler)
    assert restore(desk.scheduler.state.settings, stored).state.fleet.boot_s(SMALL) == 400.0
    old = {key: kept for key, kept in json.loads(json.dumps(stored.speeds)).items() if key != "boots"}
    assert Speeds.restored(old).boots.expected_s(offer("x")) == UNKNOWN_S


def test_a_machine_that_came_up_while_nobody_listened_tells_nothing() -> None:
    desk = Desk(offers=[SMALL])
    booted(desk, 400.0, times=2)
    desk.submit(job("a", cloud="only"))
    (instance,) = desk.instances
    for listened in (False, True):
        again = restore(desk.scheduler.state.settings, snapshot(desk.scheduler))
        if listened:
            again.handle(SiteSynced(Site.CLOUD, frozenset(), frozenset({instance})), desk.now)
        again.handle(InstanceReady(instance, desk.now), desk.now + 500.0)
        assert again.state.fleet.boot_s(SMALL) == (400.0 if listened else 100.0)


@pytest.mark.parametrize(("boot_s", "moves"), [(100.0, True), (3500.0, False)])
def test_a_move_that_saves_less_than_the_boot_of_its_machine_costs_is_left_out(
    boot_s: float, moves: bool
) -> None:
    """The move saves $2 an hour for half an hour; a boot of an hour costs $1, another one three cents."""
    desk = Desk(offers=[BIG, SMALL], packer="eva", pack_period_s=10 * MINUTE)
    for _ in range(3):
        desk.scheduler.state.fleet.speeds.boots.observe(SMALL, boot_s)
    desk.submit(job("b", cloud="only", hours=1.5, checkpoint=True), job("a", 3, cloud="only", hours=1))
    desk.ready("i-000001")
    desk.started("a", "b")
    desk.now = HOUR
    desk.ended("a")
    assert launches(desk.actions) == (["small"] if moves else [])
