"""What can be rented: SkyPilot's catalogs, or a CSV file in their form.

A catalog has a row per instance type and zone. A region whose zones cost the same is one offer, named
`aws/us-east-1/p3.8xlarge` (with `/spot` at its end for spot machines), and SkyPilot looks through the zones;
where they differ, as spot prices do, each zone is an offer: `aws/us-east-1/us-east-1b/p3.8xlarge/spot`.
SkyPilot's catalog of AWS has ids for zones; offers have the names of the user's account (`zones.py`).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from starburst.aio import in_thread
from starburst.clouds.sky.access.sdk import load
from starburst.clouds.sky.zones import ZoneNamer, ZoneNames, as_written, name_only
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.resources import Resources

log = structlog.get_logger()

#: Hours after which SkyPilot's catalog is fetched anew, as SkyPilot itself has it.
CATALOG_HOURS = 7
#: Columns without which a row says nothing.
NEEDED = ("InstanceType", "vCPUs", "MemoryGiB", "Price", "Region")


class CatalogError(Exception):
    """A catalog cannot be read; the message names file, row and value."""


@dataclass(frozen=True, slots=True)
class OfferName:
    """What an offer's name says."""

    cloud: str
    region: str
    zone: str
    instance_type: str
    spot: bool

    @property
    def infra(self) -> str:
        """As SkyPilot's `infra` has it."""
        return "/".join(part for part in (self.cloud, self.region, self.zone) if part)

    @property
    def name(self) -> str:
        """The offer's name."""
        return f"{self.infra}/{self.instance_type}{'/spot' if self.spot else ''}"

    @classmethod
    def of(cls, name: str) -> OfferName:
        """Read an offer's name.

        Raises:
            ValueError: it is not the name of one of these offers.
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
    """Which offers of a catalog to take; an empty set takes all."""

    instance_types: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    spot: bool = True
    on_demand: bool = True

    def takes(self, row: Mapping[str, str]) -> bool:
        """Whether a row of a catalog is wanted at all."""
        types, regions = self.instance_types, self.regions
        return (not types or row["InstanceType"] in types) and (not regions or row["Region"] in regions)


def catalog_offers(cloud: str, wanted: OfferFilter, zones: ZoneNames) -> list[Offer]:
    """The offers of SkyPilot's own catalog of a cloud; `zones` knows AWS's.

    Raises:
        CatalogError: it cannot be had or read.
    """
    return read_offers(catalog_path(cloud), cloud, wanted, zones if cloud == "aws" else None)


def read_offers(path: Path, cloud: str, wanted: OfferFilter, zones: ZoneNames | None = None) -> list[Offer]:
    """The offers of a CSV file in the form of SkyPilot's catalogs, cheapest first, unknown prices last.

    Zones are named by `zones`, and without it as they are written, which must not be by AWS's ids.

    Raises:
        CatalogError: it cannot be read, or a row is wrong.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise CatalogError(f"{path}: has no column {missing[0]!r}; it needs {', '.join(NEEDED)}")
            rows = list(reader)
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read ({error.strerror}); name an existing file") from None
    except UnicodeDecodeError:
        raise CatalogError(f"{path}: is not a text file; write CSV in UTF-8") from None
    name: ZoneNamer = name_only if cloud == "aws" else as_written
    if zones is not None:
        name = zones.namer(filter(None, (row.get("AvailabilityZone") for row in rows)))
    return offers_of(rows, cloud, wanted, str(path), name)


def catalog_path(cloud: str) -> Path:
    """SkyPilot's own catalog of a cloud on this disk; fetched by SkyPilot if it is missing or old.

    Raises:
        CatalogError: it is missing and cannot be fetched.
    """
    load()
    from sky.catalog import common  # noqa: PLC0415 - an extra, and slow to import

    name = f"{cloud}/vms.csv"
    try:
        _ = common.read_catalog(name, pull_frequency_hours=CATALOG_HOURS).columns  # read means fetched
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
    """The offers of a catalog's rows. Several rows of one place are the dearest of them.

    Raises:
        CatalogError: a row is wrong; `source` stands in the message.
    """
    prices: dict[tuple[str, str, bool], dict[str, Money | None]] = defaultdict(dict)
    sizes: dict[str, Resources] = {}
    for number, row in enumerate(rows, start=2):  # the first line is the header
        if not wanted.takes(row):
            continue
        try:
            resources = _resources(row)
            known = [(False, _money(row["Price"]))] if wanted.on_demand else []
            if wanted.spot and (row.get("SpotPrice") or "").strip():
                known.append((True, _money(row["SpotPrice"])))
            zone = zone_name(row.get("AvailabilityZone") or "")
        except ValueError as error:
            raise CatalogError(f"{source}, row {number}: {error}") from None
        if resources is None or zone is None:
            continue
        sizes[row["InstanceType"]] = resources
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
                    sizes[kind],
                    price,
                    region,
                    spot,
                    family=kind.split(".")[0],
                    cloud=cloud,
                    zone=zone,
                    zones=tuple((place, OfferName(cloud, region, place, kind, spot).name) for place in apart),
                )
            )
    return sorted(offers, key=_by_price)


def _by_price(offer: Offer) -> tuple[bool, Money, str]:
    price = offer.price_per_hour
    return price is None, price or Money(), offer.name


def _dearest(one: Money | None, other: Money | None) -> Money | None:
    """Nothing is as dear as what nobody knows."""
    return None if one is None or other is None else max(one, other)


def _resources(row: Mapping[str, str]) -> Resources | None:
    """What a machine of this row has; None if it has only a part of a GPU, which no job can be given here."""
    gpus = _number(row.get("AcceleratorCount") or "0", "AcceleratorCount")
    if gpus != int(gpus):
        return None
    kind = (row.get("AcceleratorName") or "") if gpus else ""
    cpus, memory = _number(row["vCPUs"], "vCPUs"), _number(row["MemoryGiB"], "MemoryGiB")
    return Resources.of(int(gpus), cpus, memory, kind)


def _money(text: str) -> Money | None:
    if not text.strip() or text.strip().lower() == "nan":
        return None
    if _number(text, "Price") <= 0:
        return None  # catalogs write 0 where they do not know
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
    """Reads in a thread; what could be read last is kept, so that a refresh that fails takes nothing away.

    Raises (the function returned does):
        CatalogError: they could never be read.
    """
    last: list[Offer] = []

    async def offers() -> list[Offer]:
        try:
            last[:] = await in_thread(read)
        except CatalogError as error:
            if not last:
                raise
            log.warning("catalog-not-read", error=str(error))
        return list(last)

    return offers
