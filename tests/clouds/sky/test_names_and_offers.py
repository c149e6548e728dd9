"""Names, labels, offers, and what SkyPilot's errors mean."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.aio import in_thread
from starburst.clouds.sky.access.errors import meaning as meaning_of
from starburst.clouds.sky.access.errors import within
from starburst.clouds.sky.access.ports import (
    CapacityError,
    ClusterState,
    ClusterStatus,
    SkyCredentialsError,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)
from starburst.clouds.sky.machines.naming import LONGEST_NAME, Naming, is_cluster, run_name
from starburst.clouds.sky.offers import CatalogError, OfferFilter, OfferName, cached, read_offers
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from tests.app.virtual import run

OURS = Naming("starburst", "one")
CLUSTER = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@given(st.text(min_size=1, max_size=80))
def test_any_intent_has_a_short_name_that_every_cloud_takes(intent: str) -> None:
    name = OURS.cluster(intent)
    if not is_cluster(intent):
        assert CLUSTER.fullmatch(name)
        assert len(name) <= LONGEST_NAME
        assert OURS.instance_id(name) is not None


def test_an_intent_is_read_back_from_its_cluster_and_from_no_other_controllers() -> None:
    name = OURS.cluster("i-000042")
    assert OURS.instance_id(name) == "i-000042"
    assert Naming("starburst", "two").instance_id(name) is None
    assert OURS.cluster(Naming("starburst", "two").cluster("i-1")) == Naming("starburst", "two").cluster(
        "i-1"
    )


def test_a_cluster_whose_label_names_another_controller_is_not_ours() -> None:
    name = OURS.cluster("i-1")
    known = ClusterStatus(name, ClusterState.UP, 0, labels=OURS.labels("i-1", 1.0, 10.0))
    assert OURS.is_ours(known)
    assert OURS.is_ours(ClusterStatus(name, ClusterState.LAUNCHING, 0), {name}), "as asked for"
    assert not OURS.is_ours(ClusterStatus(name, ClusterState.LAUNCHING, 0)), "a name alone is no claim"
    assert not OURS.is_ours(ClusterStatus(name, ClusterState.UP, 0, labels=(("starburst-controller", "x"),)))
    assert not OURS.is_ours(ClusterStatus("my-cluster", ClusterState.UP, 0))


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_different_jobs_have_different_names_in_a_queue(one: str, other: str) -> None:
    assert (run_name(one, 1, 0) == run_name(other, 1, 0)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", run_name(one, 1, 0))


HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone\n"
)
ROWS = (
    "p3.2xlarge,V100,1,8,61,3.06,0.9,us-east-1,us-east-1a\n"
    "p3.2xlarge,V100,1,8,61,3.06,0.8,us-east-1,us-east-1b\n"
    "c7i.large,,,2,4,,0.02,us-west-2,us-west-2a\n"
    "g6f.large,L4,0.125,2,8,0.2,0.1,us-east-1,us-east-1a\n"
)


def catalog(tmp_path: Path, rows: str) -> Path:
    path = tmp_path / "vms.csv"
    path.write_text(HEADER + rows)
    return path


def test_a_region_with_one_price_is_one_offer_and_one_with_several_an_offer_per_zone(tmp_path: Path) -> None:
    offers = read_offers(catalog(tmp_path, ROWS), "aws", OfferFilter())
    assert [(offer.name, offer.price_per_hour) for offer in offers] == [
        ("aws/us-west-2/c7i.large/spot", Money.of("0.02")),
        ("aws/us-east-1/us-east-1b/p3.2xlarge/spot", Money.of("0.8")),
        ("aws/us-east-1/us-east-1a/p3.2xlarge/spot", Money.of("0.9")),
        ("aws/us-east-1/p3.2xlarge", Money.of("3.06")),
        ("aws/us-west-2/c7i.large", None),
    ]
    assert offers[3] == Offer(
        "aws/us-east-1/p3.2xlarge",
        Resources.of(1, 8, 61, "V100"),
        Money.of("3.06"),
        "us-east-1",
        False,
        "p3",
        ready_s=101.0,
        cloud="aws",
        zones=(
            ("us-east-1a", "aws/us-east-1/us-east-1a/p3.2xlarge"),
            ("us-east-1b", "aws/us-east-1/us-east-1b/p3.2xlarge"),
        ),
    )
    assert (offers[1].zone, offers[1].zones) == ("us-east-1b", ())
    assert OfferName.parse("aws/us-east-1/us-east-1a/p3.2xlarge").infra == "aws/us-east-1/us-east-1a"


def test_only_what_is_wanted_is_offered(tmp_path: Path) -> None:
    wanted = OfferFilter(frozenset({"p3.2xlarge"}), frozenset({"us-east-1"}), spot=False)
    assert [offer.name for offer in read_offers(catalog(tmp_path, ROWS), "aws", wanted)] == [
        "aws/us-east-1/p3.2xlarge"
    ]


def test_a_wrong_row_is_named_with_its_value_and_the_mend(tmp_path: Path) -> None:
    path = catalog(tmp_path, ROWS + "c7i.large,,,two,4,1,,r,z\n")
    with pytest.raises(CatalogError, match=r"vms\.csv, row 6: vCPUs: 'two' is not an amount; write a number"):
        read_offers(path, "aws", OfferFilter())
    with pytest.raises(CatalogError, match="name an existing file"):
        read_offers(tmp_path / "none.csv", "aws", OfferFilter())
    (tmp_path / "bad.csv").write_text("InstanceType,Price\n")
    with pytest.raises(CatalogError, match="has no column 'vCPUs'"):
        read_offers(tmp_path / "bad.csv", "aws", OfferFilter())


def test_a_refresh_that_fails_takes_nothing_away(tmp_path: Path) -> None:
    path = catalog(tmp_path, ROWS)
    read = cached(lambda: read_offers(path, "aws", OfferFilter()))

    async def main() -> None:
        first = await read()
        path.unlink()
        assert await read() == first

    import asyncio

    asyncio.run(main())


@pytest.mark.parametrize(
    "place",
    [
        OfferName("aws", "us-east-1", "", "p3.2xlarge", False),
        OfferName("gcp", "us-central1", "us-central1-a", "n2-8", True),
    ],
)
def test_an_offer_is_read_back_from_its_name(place: OfferName) -> None:
    assert OfferName.parse(place.name) == place


@pytest.mark.parametrize("name", ["p3.2xlarge", "aws/us-east-1", "a/b/c/d/e", "//x"])
def test_a_name_of_no_place_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no offer of SkyPilot's"):
        OfferName.parse(name)


@pytest.mark.parametrize(
    ("name", "base", "meaning"),
    [
        ("ResourcesUnavailableError", Exception, CapacityError),
        ("NoCloudAccessError", Exception, SkyCredentialsError),
        ("ClusterDoesNotExist", ValueError, SkyNotFoundError),
        ("ApiServerConnectionError", RuntimeError, SkyUnreachableError),
        ("Anything", ConnectionResetError, SkyUnreachableError),
        ("InvalidClusterNameError", Exception, SkyError),
    ],
)
def test_what_skypilot_raises_means_one_of_a_few_things(
    name: str, base: type[Exception], meaning: type[SkyError]
) -> None:
    error = meaning_of(type(name, (base,), {})("some\nwords"))
    assert type(error) is meaning
    assert str(error) == "some words"


def _no_resources(text: str, *tried: Exception) -> Exception:
    error: Exception = type("ResourcesUnavailableError", (Exception,), {})(text)
    error.failover_history = list(tried)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            _no_resources(
                "Failed to provision all possible launchable resources.",
                _no_resources("Failed to acquire resources in all zones in us-east-1."),
                type("CloudUserIdentityError", (Exception,), {})("AWS access token is expired."),
            ),
            "AWS access token is expired.",
        ),
        (
            _no_resources(
                "Failed to provision all possible launchable resources.",
                _no_resources("Failed to provision on cloud AWS due to invalid cloud credentials: ..."),
            ),
            "Failed to provision on cloud AWS due to invalid cloud credentials: ...",
        ),
        (
            _no_resources("InvalidCloudCredentials: cannot launch\nError code: ExpiredToken"),
            "InvalidCloudCredentials: cannot launch Error code: ExpiredToken",
        ),
    ],
    ids=["an error of its own", "in the words of one", "in its own words"],
)
def test_credentials_that_a_cloud_rejects_are_no_lack_of_machines(error: Exception, words: str) -> None:
    told = meaning_of(error)
    assert (type(told), str(told)) == (SkyCredentialsError, words)


def test_a_lack_of_machines_in_every_zone_that_was_tried_stays_one() -> None:
    tried = [_no_resources(f"no p3.8xlarge in us-east-1{zone}") for zone in "abc"]
    assert type(meaning_of(_no_resources("none left", *tried))) is CapacityError


def test_a_request_that_no_server_knows_is_not_found() -> None:
    lost = RuntimeError("Failed to get request x: 404 {'detail': 'not found'}")
    assert type(meaning_of(lost)) is SkyNotFoundError
    assert type(meaning_of(RuntimeError("Failed to get request x: 502 bad gateway"))) is SkyUnreachableError


def test_a_call_has_a_time_limit() -> None:
    import asyncio

    with pytest.raises(SkyUnreachableError, match="no answer within 5 s"):
        run(within(5.0, asyncio.sleep(100)))


def test_an_exit_that_skypilots_server_sends_ends_a_call_and_not_the_scheduler() -> None:
    """Its provisioner exits when AWS refuses; in a task of its own that would end the event loop."""

    def leave() -> None:
        raise SystemExit(1)

    async def leave_soon() -> None:
        leave()

    async def main() -> str:
        for call in (leave_soon(), in_thread(leave)):
            with pytest.raises(SkyError, match="gave up with exit status 1"):
                await within(5.0, call)
        return "goes on"

    assert asyncio.run(main()) == "goes on"
