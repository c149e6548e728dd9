"""Clouds that cannot do all: machines that are containers run no images, some have no network for gangs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starburst.core.views.explain import explain
from starburst.domain.cloud import ANY_OFFER, Offer
from starburst.domain.job import Job
from starburst.store import codec
from tests.builders import Desk, job, launches, offer

POD = offer("runpod/CA/1x_A100", 1, 1, cloud="runpod", single=True, engine=False)
BIG_POD = offer("runpod/CA/4x_A100", 4, 4, cloud="runpod", single=True, engine=False)
DEARER = offer("aws/us-east-1/p4", 1, 9, cloud="aws")
PACKERS = pytest.mark.parametrize("packer", ["none", "eva", "optimal"])


def said(desk: Desk, name: str = "a") -> str:
    return explain(desk.scheduler.state, desk[name], str).sentence


@PACKERS
def test_a_job_with_an_image_goes_where_machines_have_an_engine(packer: str) -> None:
    desk = Desk(offers=[POD, DEARER], packer=packer)
    assert launches(desk.submit(job("a", cloud="only", image="x:1"))) == [DEARER.name]
    assert launches(desk.submit(job("b", cloud="only"))) == [POD.name]


def test_it_waits_and_says_why_where_there_are_only_containers() -> None:
    desk = Desk(offers=[POD])
    assert not launches(desk.submit(job("a", cloud="only", image="x:1")))
    assert (
        "each machine that holds it is a container, which runs no images; it runs without its image with "
        "starburst.io/runtime: host" in said(desk)
    )
    assert not desk.scheduler.state.fleet.barred(desk["a"].job), "no annotation of its user's is to blame"


def test_it_joins_no_container_that_others_need_longer() -> None:
    desk = Desk(offers=[BIG_POD], packer="eva")
    desk.submit(job("a", 1, cloud="only", hours=9))
    desk.offload("a")
    desk.submit(job("b", 1, cloud="only", hours=1, image="x:1"), job("c", 1, cloud="only", hours=1))
    assert (desk.nodes_of("b"), desk.nodes_of("c")) == ([], desk.nodes_of("a"))


def test_what_its_user_demands_stands_beside_that() -> None:
    asked = replace(ANY_OFFER, cloud="runpod")
    desk = Desk(offers=[POD, DEARER])
    desk.submit(job("a", cloud="only", image="x:1", offer_rules=asked))
    assert "a container, which runs no images" not in said(desk)
    assert "no offer that holds it is in runpod (starburst.io/infra)" in said(desk)
    assert (asked.asks, ANY_OFFER.asks) == (True, False)
    assert not job("b", image="x:1").offer_rules.asks


@pytest.mark.parametrize("gang", [(1, 1), (2, 4)])
def test_a_gang_is_rented_as_several_machines_where_they_have_a_network(gang: tuple[int, ...]) -> None:
    there = offer("aws/us-east-1/p4.big", 4, 90, cloud="aws")
    desk = Desk(offers=[POD, BIG_POD, there])
    desk.submit(job("a", gang=gang, cloud="only"))
    (machine,) = desk.scheduler.state.fleet.instances.values()
    assert (machine.offer.name, machine.offer.nodes) == (
        (BIG_POD.name, 1) if sum(gang) <= 4 else (there.name, 2)
    )


@pytest.mark.parametrize("spread", [False, True])
def test_it_says_why_not_where_no_cloud_has_one(spread: bool) -> None:
    desk = Desk(offers=[POD])
    assert not launches(desk.submit(job("a", gang=(1, 1), cloud="only", spread=spread)))
    assert "no one machine is for all its 2 tasks, and those of runpod have no network" in said(desk)


@pytest.mark.parametrize("kind", [Offer, Job])
def test_what_was_stored_before_is_read(kind: type) -> None:
    new = POD if kind is Offer else job("a", image="x:1")
    text = codec.encode(new)
    for key in ('"single":true', '"engine":false', '"engine":true'):
        text = text.replace(f",{key}", "").replace(f"{key},", "").replace(key, "")
    old = codec.decode(kind, text)
    assert old == (replace(POD, single=False, engine=True) if kind is Offer else new)
