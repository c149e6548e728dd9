"""Zones that differ in price, by the real SkyPilot: what is offered there can be rented and priced."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from starburst.clouds.sky.access.sdk import load
from starburst.clouds.sky.offers import OfferFilter, OfferName, catalog_offers
from starburst.clouds.sky.zones import ZoneNames
from starburst.core.model.events import InstanceGone, InstanceReady, OffersChanged
from starburst.domain.money import Money
from tests.sky_lab.lab import Life, lab

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

KIND, DEAR = "c7i.xlarge", "0.15"


@pytest.fixture
def dear_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of a zone of us-east-1 where SkyPilot's catalog has spot dearer than in the other."""
    load()
    from sky.catalog import aws_catalog, common

    path = Path(common.get_catalog_path("aws/vms.csv"))
    before = path.read_text()
    header, *rows = csv.reader(before.splitlines())
    kind, price, region, zone = map(header.index, ("InstanceType", "SpotPrice", "Region", "AvailabilityZone"))
    there = [row for row in rows if (row[kind], row[region]) == (KIND, "us-east-1")]
    assert len(there) == 2
    there[1][price] = DEAR
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    # What this process may have read of it.
    monkeypatch.setattr(aws_catalog, "_default_df", common.read_catalog("aws/vms.csv"))
    monkeypatch.setattr(aws_catalog, "_user_df", None)
    yield there[1][zone]
    path.write_text(before)


def test_every_zone_that_is_offered_is_one_that_skypilot_knows_and_its_id_is_not(dear_zone: str) -> None:
    from sky.catalog import aws_catalog

    found = catalog_offers("aws", OfferFilter(), ZoneNames())
    names = {(offer.region, zone) for offer in found for zone in (offer.zone, *dict(offer.zones)) if zone}
    assert {region for region, _ in names} == {"us-east-1", "us-west-2"}
    for region, zone in names:
        assert aws_catalog.validate_region_zone(region, zone) == (region, zone)
    apart = {offer.zone: offer.price_per_hour for offer in found if offer.zone}
    assert sorted(map(str, apart.values())) == ["$0.05", "$0.15"]
    for zone, price in apart.items():
        assert Money.of(aws_catalog.get_hourly_cost(KIND, True, "us-east-1", zone)) == price
    with pytest.raises(ValueError, match=f"Invalid zone '{dear_zone}'"):
        aws_catalog.validate_region_zone("us-east-1", dear_zone)


def test_a_machine_is_rented_in_the_zone_of_its_offer_at_that_zones_price(
    tmp_path: Path, dear_zone: str
) -> None:
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}"))


async def story(home: Path, controller: str) -> None:
    async with Life(home, controller) as life:
        offers = (await life.heard(OffersChanged)).offers
        (dear,) = [offer for offer in offers if offer.price_per_hour == Money.of(DEAR)]
        assert OfferName.parse(dear.name) == OfferName("aws", "us-east-1", dear.zone, KIND, spot=True)
        await life.cloud.launch("i-1", dear)
        assert (await life.heard(InstanceReady)).rate == Money.of(DEAR)
        (vm,) = [row for row in (line.split("\t") for line in lab("vms").splitlines()) if row[5] == "running"]
        assert vm[1:5] == ["us-east-1", dear.zone, KIND, "spot"]
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
