"""Offers of the embedded cloud: EC2 instance types at on-demand prices of us-east-1, Linux."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class LocalOffer:
    """An offer and how the embedded cloud delivers it; seconds of the scheduler's clock."""

    offer: Offer
    #: Seconds from the launch until the machine is up.
    boot_s: float = 0.0
    #: Seconds from then until it accepts runs.
    setup_s: float = 0.0
    #: Machines that can be alive at a time before it is sold out. None: any number.
    capacity: int | None = None


#: Type, V100s, vCPUs, GiB, dollars per hour; boot (acquire) and setup (install, register) as measured on EC2.
_EC2 = (
    ("p3.2xlarge", 1, 8, 61, "3.06", 22, 151),
    ("p3.8xlarge", 4, 32, 244, "12.24", 37, 192),
    ("p3.16xlarge", 8, 64, 488, "24.48", 52, 182),
    ("c7i.large", 0, 2, 4, "0.08925", 7, 163),
    ("c7i.xlarge", 0, 4, 8, "0.1785", 12, 149),
    ("c7i.2xlarge", 0, 8, 16, "0.357", 7, 149),
    ("c7i.8xlarge", 0, 32, 64, "1.428", 7, 144),
    ("r7i.large", 0, 2, 16, "0.1323", 7, 143),
    ("r7i.xlarge", 0, 4, 32, "0.2646", 7, 143),
    ("r7i.2xlarge", 0, 8, 64, "0.5292", 7, 145),
    ("r7i.8xlarge", 0, 32, 256, "2.1168", 7, 158),
)

EC2_CATALOG = tuple(
    LocalOffer(
        Offer(
            name,
            Resources.of(gpus, cpus, gib, "V100" if gpus else ""),
            Money.of(price),
            "us-east-1",
            cloud="aws",
            ready_s=boot_s + setup_s,
        ),
        boot_s,
        setup_s,
    )
    for name, gpus, cpus, gib, price, boot_s, setup_s in _EC2
)
