"""Zones of AWS: SkyPilot's catalog has ids, offers have the names of the user's own account or none."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from structlog.testing import capture_logs

from starburst.app.config.sites import SkyConfig
from starburst.app.doctor import cloud_checks
from starburst.app.wiring import sky
from starburst.clouds.sky import offers, zones
from starburst.clouds.sky.access.ports import CloudAccess
from starburst.clouds.sky.offers import CatalogError, OfferFilter, OfferName, catalog_offers, read_offers
from starburst.clouds.sky.quotas import AwsQuotas
from starburst.clouds.sky.zones import ZoneNames, ZonesError, ask_skypilot
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from tests.clouds.sky import fake_line
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_line import Line

HEADER = "InstanceType,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone\n"
#: As SkyPilot's catalog of AWS has them: a region whose zones differ in the price of spot, and another one.
IDS = (
    "c7i.large,2,4,0.09,0.02,us-east-1,use1-az1\n"
    "c7i.large,2,4,0.09,0.05,us-east-1,use1-az2\n"
    "c7i.large,2,4,0.09,0.03,us-east-1,use1-az4\n"
    "c7i.large,2,4,0.11,0.04,me-south-1,mes1-az1\n"
)
#: What AWS calls them in one account, which has not enabled me-south-1.
OURS = {"use1-az1": "us-east-1b", "use1-az2": "us-east-1c", "use1-az4": "us-east-1a"}
EVERY_ID = [*OURS, "mes1-az1"]
SPOT = "c7i.large/spot"


class Asked:
    """Stands in for SkyPilot; raises what is to be raised, and counts."""

    def __init__(self, names: Mapping[str, str] = OURS, error: BaseException | None = None) -> None:
        self.names, self.error, self.times = names, error, 0

    def __call__(self, ids: list[str]) -> Mapping[str, str]:
        self.times += 1
        if self.error is not None:
            raise self.error
        return {id_: self.names[id_] for id_ in ids if id_ in self.names}


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SkyPilot's catalog of whatever cloud is asked for."""
    path = tmp_path / "vms.csv"
    path.write_text(HEADER + IDS)
    monkeypatch.setattr(offers, "catalog_path", lambda _cloud: path)
    return path


def priced(found: list[Offer]) -> dict[str, Money | None]:
    return {offer.name: offer.price_per_hour for offer in found}


# --- the names are known ----------------------------------------------------------------------------------


def test_offers_of_aws_have_the_names_that_the_account_has_for_zones_and_only_its_regions(
    catalog: Path,
) -> None:
    found = catalog_offers("aws", OfferFilter(), ZoneNames(Asked()))
    assert priced(found) == {
        f"aws/us-east-1/us-east-1b/{SPOT}": Money.of("0.02"),
        f"aws/us-east-1/us-east-1a/{SPOT}": Money.of("0.03"),
        f"aws/us-east-1/us-east-1c/{SPOT}": Money.of("0.05"),
        "aws/us-east-1/c7i.large": Money.of("0.09"),
    }
    wished = found[-1].in_zone("us-east-1b")
    assert wished is not None
    assert wished.name == "aws/us-east-1/us-east-1b/c7i.large"
    assert OfferName.parse(wished.name).infra == "aws/us-east-1/us-east-1b"


def test_names_are_asked_for_once_and_again_for_zones_that_are_new(catalog: Path) -> None:
    ask = Asked()
    names = ZoneNames(ask)
    for wanted in (OfferFilter(), OfferFilter(regions=frozenset({"us-east-1"})), OfferFilter(spot=False)):
        catalog_offers("aws", wanted, names)
    assert ask.times == 1
    catalog.write_text(catalog.read_text() + "c7i.large,2,4,0.09,0.01,us-east-1,use1-az6\n")
    ask.names = {**OURS, "use1-az6": "us-east-1f"}
    found = catalog_offers("aws", OfferFilter(), names)
    assert (found[0].zone, ask.times) == ("us-east-1f", 2)


def test_names_that_were_known_stay_so_when_they_cannot_be_asked_for_again(catalog: Path) -> None:
    ask = Asked()
    names = ZoneNames(ask)
    before = catalog_offers("aws", OfferFilter(), names)
    catalog.write_text(catalog.read_text() + "c7i.large,2,4,0.09,0.01,us-east-1,use1-az6\n")
    ask.error = OSError("no network")
    assert catalog_offers("aws", OfferFilter(), names) == before
    assert (ask.times, names.trouble) == (2, "")


def test_other_clouds_are_as_their_catalogs_have_them(catalog: Path) -> None:
    catalog.write_text(HEADER + "n2-8,8,32,0.4,0.1,us-central1,us-central1-a\n")
    ask = Asked()
    (offer, _) = catalog_offers("gcp", OfferFilter(), ZoneNames(ask))
    assert (offer.zones, ask.times) == ((("us-central1-a", "gcp/us-central1/us-central1-a/n2-8/spot"),), 0)


# --- they are not -----------------------------------------------------------------------------------------


NONE = ZonesError("SkyPilot finds no AWS credentials where Starburst runs")


@pytest.mark.parametrize(
    ("ask", "trouble"),
    [
        (Asked(error=NONE), str(NONE)),
        (Asked(error=RuntimeError("AWS said no\n| a | table |")), "AWS said no"),
        (Asked(error=AttributeError()), "AttributeError"),
        (Asked(names={}), "SkyPilot has a name for none of the catalog's zones"),
        (Asked(names={id_: id_ for id_ in OURS}), "SkyPilot has a name for none of the catalog's zones"),
    ],
)
def test_without_names_a_region_is_one_offer_at_its_dearest_zones_price(
    catalog: Path, ask: Asked, trouble: str
) -> None:
    names = ZoneNames(ask)
    found = catalog_offers("aws", OfferFilter(), names)
    assert priced(found) == {
        f"aws/me-south-1/{SPOT}": Money.of("0.04"),
        f"aws/us-east-1/{SPOT}": Money.of("0.05"),
        "aws/me-south-1/c7i.large": Money.of("0.11"),
        "aws/us-east-1/c7i.large": Money.of("0.09"),
    }
    assert {(offer.zone, offer.zones) for offer in found} == {("", ())}
    assert names.trouble == trouble


def test_a_zone_whose_price_nobody_knows_is_its_regions_dearest(catalog: Path) -> None:
    catalog.write_text(catalog.read_text().replace("0.03", "0"))
    found = catalog_offers("aws", OfferFilter(), ZoneNames(Asked(error=NONE)))
    assert priced(found)[f"aws/us-east-1/{SPOT}"] is None


def test_names_that_take_too_long_are_waited_for_once_and_used_when_they_have_come(catalog: Path) -> None:
    come, asked = threading.Event(), []

    def ask(ids: list[str]) -> dict[str, str]:
        asked.append(ids)
        come.wait(20)
        return OURS

    names, since = ZoneNames(ask, limit_s=0.2), time.monotonic()
    for _ in range(100):
        assert catalog_offers("aws", OfferFilter(spot=False), names)[0].zones == ()
    assert time.monotonic() - since < 10, "100 limits would be 20 s"
    assert names.trouble == "AWS has not told them within 0.2 s"
    come.set()
    while names.trouble and time.monotonic() - since < 20:
        found = catalog_offers("aws", OfferFilter(spot=False), names)
    assert dict(found[0].zones).keys() == set(OURS.values())
    assert asked == [sorted(EVERY_ID)]


def test_what_could_not_be_told_is_asked_for_again_after_a_while_only(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Asked(error=NONE)
    names = ZoneNames(ask)
    for _ in range(3):
        catalog_offers("aws", OfferFilter(), names)
    assert ask.times == 1
    monkeypatch.setattr(zones, "AGAIN_S", 0.0)
    later, ask.error = ZoneNames(ask), NONE
    catalog_offers("aws", OfferFilter(), later)
    ask.error = None
    assert catalog_offers("aws", OfferFilter(), later)[0].zone == "us-east-1b"


def test_unknown_names_are_said_once_in_the_log(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "AGAIN_S", 0.0)
    ask = Asked(error=NONE)
    monkeypatch.setattr(sky, "ZONES", ZoneNames(ask))
    with capture_logs() as told:
        for ask.error in (NONE, NONE, None, NONE):
            sky._read_and_warn(SkyConfig(), [AwsQuotas(lambda _region: {})])
    assert [(line["event"], line["error"]) for line in told] == [("zone-names-unknown", str(NONE))]


def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Asked, **config: Any) -> list[str]:
    """What it says of offers and zones."""
    names = ZoneNames(ask)
    monkeypatch.setattr(sky, "ZONES", names)
    monkeypatch.setattr(cloud_checks, "ZONES", names)
    monkeypatch.setattr(sky, "find_spec", lambda _: object())
    monkeypatch.setattr(fake_line, "CALL_S", 0.0)
    monkeypatch.setattr(cloud_checks, "AwsQuotas", lambda: AwsQuotas(lambda _region: {}))
    api = Line(FakeSky(tmp_path, access={"aws": CloudAccess(frozenset({"compute"}), {})}))
    checks = asyncio.run(cloud_checks.cloud_checks(SkyConfig(**config), api))
    return [f"{check.status.value} {check.line}" for check in checks if check.check in ("offers", "zones")]


def test_the_doctor_says_in_one_line_that_names_are_unknown_and_what_to_do(
    catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *more = doctor(tmp_path, monkeypatch, Asked(error=NONE))
    assert first.startswith("ok offers: 2 from SkyPilot's catalogs")
    assert more == [
        f"warn zones: the names of AWS's zones in your account are not known ({NONE}): a region counts as "
        "the dearest of its zones, and no job can ask for a zone; where Starburst runs: aws configure, with "
        "leave for ec2:DescribeRegions and ec2:DescribeAvailabilityZones"
    ]
    assert len(doctor(tmp_path, monkeypatch, Asked())) == 1


# --- what users write, and what SkyPilot tells ------------------------------------------------------------


def test_a_users_own_prices_must_not_name_a_zone_of_aws_by_its_id(catalog: Path) -> None:
    named = IDS.replace("use1-az1", "us-east-1b").replace("use1-az4", "us-east-1d").splitlines(keepends=True)
    catalog.write_text(HEADER + named[0] + named[2])
    assert [offer.zone for offer in read_offers(catalog, "aws", OfferFilter(on_demand=False))] == [
        "us-east-1b",
        "us-east-1d",
    ]
    catalog.write_text(HEADER + named[0] + named[1])
    told = (
        r"row 3: AvailabilityZone: 'use1-az2' is the id of a zone.*; write that name, such as us-east-1b, or "
    )
    with pytest.raises(CatalogError, match=told):
        read_offers(catalog, "aws", OfferFilter())
    assert len(read_offers(catalog, "other", OfferFilter())) == 3


@pytest.mark.parametrize("zone", ["use1-az1", "apne1-az4", "usw2-lax1-az1", "usgw1-az2"])
def test_ids_of_zones_are_known_by_their_form(zone: str) -> None:
    with pytest.raises(ValueError, match=f"'{zone}' is the id of a zone"):
        zones.name_only(zone)


@pytest.mark.parametrize("zone", ["", "us-east-1b", "us-west-2-lax-1a", "us-east-1-wl1-bos-wlz-1"])
def test_names_of_zones_are_taken_as_they_are(zone: str) -> None:
    assert zones.name_only(zone) == zone


def test_an_older_stores_offer_in_a_zone_by_its_id_is_read_still() -> None:
    assert OfferName.parse(f"aws/us-east-1/use1-az1/{SPOT}") == OfferName(
        "aws", "us-east-1", "use1-az1", "c7i.large", spot=True
    )


@pytest.fixture
def skypilot(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As much of SkyPilot as tells zones' names; a frame of pandas is a dict of its columns here."""
    modules = {name: ModuleType(name) for name in ("pandas", "sky", "sky.catalog")}
    aws_catalog = ModuleType("sky.catalog.aws_catalog")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(zones, "load", lambda: None)
    monkeypatch.setattr(modules["pandas"], "DataFrame", dict, raising=False)
    monkeypatch.setattr(modules["sky.catalog"], "aws_catalog", aws_catalog, raising=False)
    monkeypatch.setattr(aws_catalog, "_apply_az_mapping_lock", threading.Lock(), raising=False)
    return aws_catalog


def test_skypilot_is_asked_for_the_names_by_its_own_functions_one_at_a_time(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def join(rows: dict[str, list[str]]) -> dict[str, list[str]]:
        assert skypilot._apply_az_mapping_lock.locked()
        kept = [id_ for id_ in rows["AvailabilityZone"] if id_ in OURS]
        return {"Id": kept, "AvailabilityZone": [OURS[id_] for id_ in kept]}

    monkeypatch.setattr(skypilot, "_fetch_and_apply_az_mapping", join, raising=False)
    assert ask_skypilot(EVERY_ID) == OURS


def test_ids_that_skypilot_gives_back_for_want_of_credentials_are_no_names(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skypilot, "_fetch_and_apply_az_mapping", lambda rows: rows, raising=False)
    with pytest.raises(ZonesError, match="no AWS credentials"):
        ask_skypilot(EVERY_ID)
