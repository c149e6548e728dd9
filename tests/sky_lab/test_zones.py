"""Zones that differ in price, by the real SkyPilot: what is offered there is one that it knows.

`test_lab.py` rents a machine in one.
"""

from __future__ import annotations

import pytest

from starburst.clouds.sky.offers import OfferFilter, catalog_offers
from starburst.clouds.sky.zones import ZoneNames
from starburst.domain.money import Money
from tests.sky_lab.conftest import KIND

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]


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
