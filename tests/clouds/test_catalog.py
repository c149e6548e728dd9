"""What the embedded cloud sells by default."""

from __future__ import annotations

from starburst.clouds.catalog import EC2_CATALOG
from starburst.domain.resources import Resources

OFFERS = {entry.offer.name: entry.offer for entry in EC2_CATALOG}


def test_names_are_unique() -> None:
    assert len(OFFERS) == len(EC2_CATALOG)


def test_gpu_machines_are_priced_and_sized_as_on_ec2() -> None:
    shown = {name: (str(offer.price_per_hour), offer.resources) for name, offer in OFFERS.items()}
    assert shown["p3.2xlarge"] == ("$3.06", Resources.of(1, 8, 61, "V100"))
    assert shown["p3.8xlarge"] == ("$12.24", Resources.of(4, 32, 244, "V100"))
    assert shown["p3.16xlarge"] == ("$24.48", Resources.of(8, 64, 488, "V100"))


def test_within_a_family_twice_the_machine_costs_twice_as_much() -> None:
    for family, unit in (("c7i", "c7i.large"), ("r7i", "r7i.large")):
        large = OFFERS[unit]
        assert large.price_per_hour is not None
        for name, offer in OFFERS.items():
            if name.startswith(family):
                times = offer.resources.cpu_milli // large.resources.cpu_milli
                assert offer.price_per_hour == large.price_per_hour * times
                assert offer.resources.memory_mib == large.resources.memory_mib * times
