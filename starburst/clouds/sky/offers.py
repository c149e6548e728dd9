"""What can be rented: SkyPilot's catalogs, or a CSV file of the same format.

A catalog has a row per instance type and zone. If all zones of a region have one price, the region is one
offer, named `aws/us-east-1/p3.8xlarge` (with `/spot` at its end for spot machines), and SkyPilot tries its
zones. Where prices differ, as spot prices do, each zone is one: `aws/us-east-1/us-east-1b/p3.8xlarge/spot`.
SkyPilot's catalog of AWS has ids of zones; offers have their names in the user's account (`zones.py`).
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from starburst.aio import in_thread
from starburst.clouds.sky.access.sdk import load
from starburst.clouds.sky.cloud_facts import CONTAINERS, WITHOUT_GANGS, WITHOUT_SPOT, boot_s
from starburst.clouds.sky.gcp_rows import built_in_gpus, whole_machines
from starburst.clouds.sky.place_patterns import PlacePattern
from starburst.clouds.sky.zones import ZoneNamer, ZoneNames, as_written, name_only
from starburst.domain.cloud import Offer
from starburst.domain.gpu_types import gpu_type, is_arm, maker
from starburst.domain.money import Money
from starburst.domain.resources import Resources

log = structlog.get_logger()

#: Hours after which SkyPilot's catalog is fetched anew; the same as in SkyPilot.
CATALOG_HOURS = 7
#: Required columns.
NEEDED = ("InstanceType", "vCPUs", "MemoryGiB", "Price", "Region")

#: Memory of one GPU, in the column GpuInfo.
_GPU_MEMORY = re.compile(r"SizeInMiB\W+(\d{1,9})")
#: Instance types with ARM processors of AWS, GCP and Azure, by the naming rules of these clouds.
_ARM_TYPES = re.compile(r"(a1|[a-z]+\d+g[a-z]*)\.|(t2a|c4a|n4a|a4x)-|Standard_[A-Z]+\d+[a-oq-z]*p[a-z]*_")


class CatalogError(Exception):
    """A catalog cannot be read; the message names file, row and value."""


@dataclass(frozen=True, slots=True)
class OfferName:
    """The parts of an offer's name. An empty zone means any zone of the region."""

    cloud: str
    region: str
    zone: str
    instance_type: str
    spot: bool

    @property
    def infra(self) -> str:
        """The location in the form of SkyPilot's `infra`: cloud/region[/zone]."""
        return "/".join(part for part in (self.cloud, self.region, self.zone) if part)

    @property
    def name(self) -> str:
        """The offer's name."""
        return f"{self.infra}/{self.instance_type}{'/spot' if self.spot else ''}"

    @classmethod
    def parse(cls, name: str) -> OfferName:
        """Parse an offer's name.

        Raises:
            ValueError: it is no name of an offer of SkyPilot's.
        """
        parts = name.split("/")
        spot = parts[-1] == "spot"
        parts = parts[:-1] if spot else parts
        if len(parts) == 3:
            parts.insert(2, "")
        if len(parts) != 4 or not (parts[0] and parts[1] and parts[3]):
            raise ValueError(f"{name!r} is no offer of SkyPilot's; write cloud/region[/zone]/type[/spot]")
        return cls(parts[0], parts[1], parts[2], parts[3], spot)


@dataclass(frozen=True, slots=True)
class OfferFilter:
    """Which rows of a catalog become offers; an empty set or tuple accepts all."""

    instance_types: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    spot: bool = True
    on_demand: bool = True
    #: At least one of the first must match, and none of the second.
    allow: tuple[PlacePattern, ...] = ()
    deny: tuple[PlacePattern, ...] = ()

    def accepts(self, cloud: str, row: Mapping[str, str]) -> bool:
        """Whether a row of a cloud's catalog may become an offer."""
        types, regions = self.instance_types, self.regions
        place = cloud, row["Region"], row["InstanceType"]
        return (
            (not types or row["InstanceType"] in types)
            and (not regions or row["Region"] in regions)
            and (not self.allow or any(pattern.matches(*place) for pattern in self.allow))
            and not any(pattern.matches(*place) for pattern in self.deny)
        )


def catalog_offers(cloud: str, wanted: OfferFilter, zones: ZoneNames) -> list[Offer]:
    """The offers of SkyPilot's catalog of a cloud; `zones` names those of AWS.

    Raises:
        CatalogError: the catalog cannot be fetched or read.
    """
    return read_offers(catalog_path(cloud), cloud, wanted, zones if cloud == "aws" else None)


def read_offers(path: Path, cloud: str, wanted: OfferFilter, zones: ZoneNames | None = None) -> list[Offer]:
    """The offers of a CSV file in SkyPilot's format, cheapest first, unknown prices last.

    Zones are named by `zones`; without it the file has names of zones, and must not have ids of AWS.

    Raises:
        CatalogError: it cannot be read, or a row is wrong.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise CatalogError(f"{path}: has no column {missing[0]!r}; it needs {', '.join(NEEDED)}")
            rows: list[Mapping[str, str]] = list(reader)
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read ({error.strerror}); name an existing file") from None
    except UnicodeDecodeError:
        raise CatalogError(f"{path}: is not a text file; write CSV in UTF-8") from None
    if cloud == "gcp" and not all(row["InstanceType"] for row in rows):
        rows = list(whole_machines(rows, built_in_gpus()))
    name: ZoneNamer = name_only if cloud == "aws" else as_written
    if zones is not None:
        name = zones.namer(filter(None, (row.get("AvailabilityZone") for row in rows)))
    return offers_of(rows, cloud, wanted, str(path), name)


def catalog_path(cloud: str) -> Path:
    """The file of SkyPilot's catalog of a cloud; SkyPilot fetches it if it is missing or old.

    Raises:
        CatalogError: it is missing and cannot be fetched.
    """
    load()
    from sky.catalog import common  # noqa: PLC0415 - an extra, and slow to import

    name = f"{cloud}/vms.csv"
    try:
        _ = common.read_catalog(name, pull_frequency_hours=CATALOG_HOURS).columns  # to read it fetches it
    except Exception as error:  # pandas' and the network's
        raise CatalogError(f"SkyPilot's catalog of {cloud} cannot be had: {error}") from error
    return Path(common.get_catalog_path(name))


def offers_of(
    rows: Iterable[Mapping[str, str]],
    cloud: str,
    wanted: OfferFilter,
    source: str = "",
    zone_name: ZoneNamer = as_written,
) -> list[Offer]:
    """The offers of a catalog's rows; of several rows of one zone the dearest counts.

    Raises:
        CatalogError: a row is wrong; the message names `source`.
    """
    prices: dict[tuple[str, str, bool], dict[str, Money | None]] = defaultdict(dict)
    sizes: dict[str, _InstanceType] = {}
    spots = wanted.spot and cloud not in WITHOUT_SPOT
    for number, row in enumerate(rows, start=2):  # the first line is the header
        if not wanted.accepts(cloud, row):
            continue
        try:
            machine = _machine(row)
            known = [(False, _money(row["Price"]))] if wanted.on_demand else []
            if spots and (row.get("SpotPrice") or "").strip().lower() not in ("", "nan"):
                known.append((True, _money(row["SpotPrice"])))
            zone = zone_name(row.get("AvailabilityZone") or "")
        except ValueError as error:
            raise CatalogError(f"{source}, row {number}: {error}") from None
        if machine is None or zone is None:
            continue
        sizes[row["InstanceType"]] = machine
        for spot, price in known:
            by_zone = prices[row["InstanceType"], row["Region"], spot]
            by_zone[zone] = _dearest(price, by_zone.get(zone, price))
    offers = []
    for (kind, region, spot), by_zone in prices.items():
        one_price = len(set(by_zone.values())) == 1
        for zone, price in [("", next(iter(by_zone.values())))] if one_price else by_zone.items():
            name = OfferName(cloud, region, zone, kind, spot).name
            apart = [place for place in by_zone if place] if one_price else []
            offers.append(
                Offer(
                    name,
                    sizes[kind].resources,
                    price,
                    region,
                    spot,
                    family=kind.split(".")[0],
                    ready_s=boot_s(cloud, sizes[kind].resources.gpus),
                    cloud=cloud,
                    zone=zone,
                    zones=tuple((place, OfferName(cloud, region, place, kind, spot).name) for place in apart),
                    arch=sizes[kind].arch,
                    gpu_maker=sizes[kind].gpu_maker,
                    gpu_memory_mib=sizes[kind].gpu_memory_mib,
                    single=cloud in WITHOUT_GANGS,
                    engine=cloud not in CONTAINERS,
                )
            )
    return sorted(offers, key=_by_price)


def _by_price(offer: Offer) -> tuple[bool, Money, str]:
    price = offer.price_per_hour
    return price is None, price or Money(), offer.name


def dearer_by(extra: Money, offers: Iterable[Offer]) -> list[Offer]:
    """The offers, each dearer by an amount per hour; unknown prices stay unknown."""
    return [
        offer if offer.price_per_hour is None else replace(offer, price_per_hour=offer.price_per_hour + extra)
        for offer in offers
    ]


def _dearest(one: Money | None, other: Money | None) -> Money | None:
    """The higher of two prices; an unknown price (None) wins."""
    return None if one is None or other is None else max(one, other)


@dataclass(frozen=True, slots=True)
class _InstanceType:
    """An instance type, as a row tells it; the fields are those of `Offer`."""

    resources: Resources
    arch: str
    gpu_maker: str
    gpu_memory_mib: int


def _machine(row: Mapping[str, str]) -> _InstanceType | None:
    """The machine of this row; None if it has a fraction of a GPU, which jobs cannot request."""
    gpus = _number(row.get("AcceleratorCount") or "0", "AcceleratorCount")
    if gpus != int(gpus):
        return None
    name = (row.get("AcceleratorName") or "") if gpus else ""
    kind = gpu_type(name) or name
    cpus, memory = _number(row["vCPUs"], "vCPUs"), _number(row["MemoryGiB"], "MemoryGiB")
    found = _GPU_MEMORY.search(row.get("GpuInfo") or "") if gpus else None
    return _InstanceType(
        Resources.of(int(gpus), cpus, memory, kind),
        _arch(row.get("Arch") or "", row["InstanceType"], kind),
        maker(name),
        int(found[1]) if found else 0,
    )


def _arch(said: str, instance_type: str, kind: str) -> str:
    """The architecture as Kubernetes names it; where a catalog does not say, by the instance type's name."""
    if said.strip().lower() not in ("", "nan"):
        return {"x86_64": "amd64", "aarch64": "arm64"}.get(said.strip().lower(), said.strip().lower())
    return "arm64" if is_arm(kind) or _ARM_TYPES.match(instance_type) else "amd64"


def _money(text: str) -> Money | None:
    if not text.strip() or text.strip().lower() == "nan":
        return None
    if _number(text, "Price") <= 0:
        return None  # catalogs write 0 for unknown prices
    return Money.of(text.strip())


def _number(text: str, column: str) -> float:
    try:
        number = float(text or 0)
        if 0 <= number < 1e9:
            return number
    except ValueError:
        pass
    raise ValueError(f"{column}: {text!r} is not an amount; write a number such as 4 or 0.5")


def cached(read: Callable[[], list[Offer]]) -> Callable[[], Awaitable[list[Offer]]]:
    """A function that reads the offers in a thread and returns the last ones that could be read.

    Raises (the returned function does):
        CatalogError: they could never be read.
    """
    last: list[Offer] = []

    async def offers() -> list[Offer]:
        try:
            last[:] = await in_thread(read)
        except Exception as error:  # SkyPilot's and its libraries', too
            if not last:
                raise CatalogError(str(error) or type(error).__name__) from error
            log.warning("catalog-not-read", error=f"{type(error).__name__}: {error}")
        return list(last)

    return offers
