"""Offers of other clouds than AWS, from catalogs as SkyPilot has them; and where machines may be rented."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.app.config import parse_config
from starburst.app.errors import UserError
from starburst.clouds.sky.gcp_rows import whole_machines
from starburst.clouds.sky.offers import OfferFilter, offers_of, read_offers
from starburst.clouds.sky.place_patterns import PlacePattern
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources

PLAIN = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region"
ZONED = f"{PLAIN},AvailabilityZone"
#: Rows as in SkyPilot's catalogs (schema v8); prices of some day.
CATALOGS = {
    "azure": f"""{PLAIN},Generation
Standard_NC24ads_A100_v4,A100-80GB,1,24,220,,3.673,1.469,eastus,V2
Standard_NC24ads_A100_v4,A100-80GB,1,24,220,,4.775,,westeurope,V2
Standard_D8ps_v5,,,8,32,,0.308,0.06,eastus,V2
""",
    "lambda": """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
gpu_8x_a100,A100,8,124,1800,10.32,us-east-1,,
gpu_1x_h100_pcie,H100,1,26,200,2.49,us-west-3,,nan
""",
    "runpod": f"""{ZONED}
1x_RTX4090_SECURE,RTX4090,1,8,41,,0.69,0.35,CA,CA-MTL-1
1x_RTX4090_SECURE,RTX4090,1,8,41,,0.69,0.35,CA,CA-MTL-2
""",
    "nebius": """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
gpu-h100-sxm_8gpu-128vcpu-1600gb,H100,8,128,1600,23.6,eu-north1,,10
""",
    "gcp": f"""{ZONED}
a2-highgpu-1g,,,12,85,,0.74,0.2,us-central1,us-central1-a
a2-highgpu-1g,,,12,85,,0.74,0.2,us-central1,us-central1-b
n2-standard-8,,,8,32,,0.39,0.09,us-central1,us-central1-a
,A100,1,,,,2.93,0.88,us-central1,us-central1-a
,A100,8,,,,23.47,7.04,us-central1,us-central1-a
,T4,1,,,,0.35,0.11,us-central1,us-central1-a
""",
}


def built_in(instance_type: str) -> dict[str, float] | None:
    return {"A100": 1} if instance_type == "a2-highgpu-1g" else None


def named(tmp_path: Path, cloud: str) -> dict[str, Money | None]:
    (tmp_path / "vms.csv").write_text(CATALOGS[cloud])
    offers = read_offers(tmp_path / "vms.csv", cloud, OfferFilter())
    assert {offer.cloud for offer in offers} == {cloud}
    return {offer.name: offer.price_per_hour for offer in offers}


def test_azure_has_no_zones_and_spot_where_it_has_a_price(tmp_path: Path) -> None:
    assert named(tmp_path, "azure") == {
        "azure/eastus/Standard_D8ps_v5/spot": Money.of("0.06"),
        "azure/eastus/Standard_D8ps_v5": Money.of("0.308"),
        "azure/eastus/Standard_NC24ads_A100_v4/spot": Money.of("1.469"),
        "azure/eastus/Standard_NC24ads_A100_v4": Money.of("3.673"),
        "azure/westeurope/Standard_NC24ads_A100_v4": Money.of("4.775"),
    }


def test_lambda_has_neither_zones_nor_spot_machines(tmp_path: Path) -> None:
    assert named(tmp_path, "lambda") == {
        "lambda/us-west-3/gpu_1x_h100_pcie": Money.of("2.49"),
        "lambda/us-east-1/gpu_8x_a100": Money.of("10.32"),
    }


def test_runpod_has_zones_of_one_price(tmp_path: Path) -> None:
    (tmp_path / "vms.csv").write_text(CATALOGS["runpod"])
    spot, firm = read_offers(tmp_path / "vms.csv", "runpod", OfferFilter())
    assert (spot.name, firm.name) == ("runpod/CA/1x_RTX4090_SECURE/spot", "runpod/CA/1x_RTX4090_SECURE")
    assert [zone for zone, _ in firm.zones] == ["CA-MTL-1", "CA-MTL-2"]


def test_nebius_has_no_zones(tmp_path: Path) -> None:
    assert named(tmp_path, "nebius") == {
        "nebius/eu-north1/gpu-h100-sxm_8gpu-128vcpu-1600gb/spot": Money.of(10),
        "nebius/eu-north1/gpu-h100-sxm_8gpu-128vcpu-1600gb": Money.of("23.6"),
    }


def test_a_machine_of_gcp_costs_what_it_and_its_gpus_cost_and_is_there_where_both_are(tmp_path: Path) -> None:
    names, *rows = (line.split(",") for line in CATALOGS["gcp"].splitlines())
    machines = whole_machines([dict(zip(names, row, strict=True)) for row in rows], built_in)
    offers = {offer.name: offer for offer in offers_of(machines, "gcp", OfferFilter())}
    assert {name: offer.price_per_hour for name, offer in offers.items()} == {
        "gcp/us-central1/n2-standard-8/spot": Money.of("0.09"),
        "gcp/us-central1/n2-standard-8": Money.of("0.39"),
        "gcp/us-central1/a2-highgpu-1g/spot": Money.of("1.08"),
        "gcp/us-central1/a2-highgpu-1g": Money.of("3.67"),
    }
    gpu = offers["gcp/us-central1/a2-highgpu-1g"]
    assert gpu.resources == Resources.of(1, 12, 85, "A100")
    assert [zone for zone, _ in gpu.zones] == ["us-central1-a"]


def only(tmp_path: Path, cloud: str, name: str) -> Offer:
    (tmp_path / "vms.csv").write_text(CATALOGS[cloud])
    (found,) = [each for each in read_offers(tmp_path / "vms.csv", cloud, OfferFilter()) if each.name == name]
    return found


@pytest.mark.parametrize(
    ("cloud", "name", "facts"),
    [
        ("azure", "azure/eastus/Standard_D8ps_v5/spot", (120, False, True)),
        ("azure", "azure/eastus/Standard_NC24ads_A100_v4", (160, False, True)),
        ("lambda", "lambda/us-east-1/gpu_8x_a100", (200, False, True)),
        ("runpod", "runpod/CA/1x_RTX4090_SECURE", (0, True, False)),
        ("nebius", "nebius/eu-north1/gpu-h100-sxm_8gpu-128vcpu-1600gb", (0, False, True)),
    ],
)
def test_an_offer_has_the_facts_of_its_cloud(
    tmp_path: Path, cloud: str, name: str, facts: tuple[float, bool, bool]
) -> None:
    """Seconds to come up, whether it is rented one by one, and whether jobs with an image run there."""
    offer = only(tmp_path, cloud, name)
    assert (offer.ready_s, offer.single, offer.engine) == facts


def test_a_price_of_spot_makes_no_spot_machine_where_skypilot_rents_none() -> None:
    row = {"InstanceType": "m", "Region": "r", "vCPUs": "1", "MemoryGiB": "1", "Price": "2", "SpotPrice": "1"}
    assert [offer.spot for offer in offers_of([row], "lambda", OfferFilter())] == [False]
    assert [offer.spot for offer in offers_of([row], "nebius", OfferFilter())] == [True, False]


def test_a_price_that_is_half_known_is_unknown() -> None:
    machine = {"InstanceType": "a2-highgpu-1g", "vCPUs": "12", "MemoryGiB": "85", "Region": "r"}
    gpu = {"InstanceType": "", "AcceleratorName": "A100", "AcceleratorCount": "1", "Region": "r"}
    for price in ("", "nan", "free"):
        (row,) = whole_machines([{**machine, "Price": "1"}, {**gpu, "Price": price}], built_in)
        assert row["Price"] == ""


# --- where machines may be rented ------------------------------------------------------------------------


def kept(tmp_path: Path, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> set[str]:
    (tmp_path / "vms.csv").write_text(CATALOGS["azure"])
    patterns = (tuple(map(PlacePattern.parse, texts)) for texts in (allow, deny))
    wanted = OfferFilter((), frozenset(), False, True, *patterns)
    return {offer.name.removeprefix("azure/") for offer in read_offers(tmp_path / "vms.csv", "azure", wanted)}


ALL = {
    "eastus/Standard_D8ps_v5",
    "eastus/Standard_NC24ads_A100_v4",
    "westeurope/Standard_NC24ads_A100_v4",
}


@pytest.mark.parametrize(
    ("allow", "deny", "left"),
    [
        ((), (), ALL),
        (("azure",), (), ALL),
        (("aws", "azure/east*"), (), {name for name in ALL if name.startswith("east")}),
        (("*/*/Standard_NC*",), ("azure/east*",), {"westeurope/Standard_NC24ads_A100_v4"}),
        ((), ("*/*/*_A100_*",), {"eastus/Standard_D8ps_v5"}),
        (("azure",), ("azure",), set()),
        (("aws",), (), set()),
    ],
)
def test_what_is_allowed_and_not_denied_is_offered(
    tmp_path: Path, allow: tuple[str, ...], deny: tuple[str, ...], left: set[str]
) -> None:
    assert kept(tmp_path, allow, deny) == left


@given(st.lists(st.sampled_from("ab-1"), min_size=1).map("".join), st.sampled_from(["aws", "gcp"]))
def test_a_denied_place_is_never_offered_and_every_other_one_is(region: str, cloud: str) -> None:
    row = {"InstanceType": "m", "Region": region, "vCPUs": "1", "MemoryGiB": "1", "Price": "1"}
    for denied in (region, f"{region[0]}*", "*"):
        wanted = OfferFilter(deny=(PlacePattern.parse(f"{cloud}/{denied}"),))
        assert not offers_of([row], cloud, wanted)
        assert offers_of([row], "azure", wanted)


@pytest.mark.parametrize(
    ("cloud", "line"),
    [
        (
            {"clouds": ["amazon"]},
            "'amazon': SkyPilot rents machines from no cloud of this name; write one of aws,",
        ),
        (
            {"clouds": ["AWS"]},
            "'AWS': SkyPilot rents machines from no cloud of this name; did you mean aws?",
        ),
        ({"deny": ["gcp/us-*"]}, "cloud.deny: 'gcp/us-*': no cloud of cloud.clouds is gcp; there is aws"),
        ({"allow": ["aws//p3.*"]}, "cloud.allow: 'aws//p3.*' is no place; write CLOUD, CLOUD/REGION or"),
        ({"allow": ["a/b/c/d"]}, "cloud.allow: 'a/b/c/d' is no place"),
        (
            {"clouds": ["aws", "verda"]},
            "clouds[1]: 'verda': SkyPilot gives no machine there back by itself (autodown), so none would",
        ),
        (
            {"clouds": ["lambda", "do"], "spot": "only"},
            "cloud.spot: 'only': SkyPilot rents no spot machines from lambda, do; write never",
        ),
        (
            {"clouds": ["aws", "runpod"], "bucket": "s3://x"},
            "'s3://x': SkyPilot mounts nothing on runpod; leave it out, here or in cloud.clouds",
        ),
    ],
)
def test_a_slip_in_the_config_is_one_line(cloud: dict[str, object], line: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config({"cloud": {"kind": "skypilot", **cloud}}, "starburst.yaml")
    assert line in str(error.value).replace('"', "'")
    assert len(str(error.value).splitlines()) == 1


def test_spot_machines_of_one_cloud_are_enough() -> None:
    parse_config(
        {"cloud": {"kind": "skypilot", "clouds": ["lambda", "aws"], "spot": "only"}}, "starburst.yaml"
    )
