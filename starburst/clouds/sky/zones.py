"""Names of AWS's zones in the user's account.

SkyPilot's catalog of AWS has ids of zones, such as use1-az1, which mean the same place in every account.
Requests and prices use names, such as us-east-1b, which AWS assigns to zones differently in each account.
SkyPilot asks AWS for the names once and keeps them in a file (sky/catalog/aws_catalog.py). Its function for
that is private: SkyPilot's version is bounded, and a test checks that the function is there.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from importlib import import_module
from typing import TypeAlias

import structlog

from starburst.clouds.sky.access.sdk import load

log = structlog.get_logger()

#: Looks up the names of zone ids; ids that the account does not have are missing in the result.
ZoneLookup: TypeAlias = "Callable[[list[str]], Mapping[str, str]]"
#: The name for a zone in an offer: "" means any zone of the region, None means no offer.
ZoneNamer: TypeAlias = "Callable[[str], str | None]"

#: Wall seconds: for SkyPilot to look the names up, which asks every region of AWS the first time; and until
#: a failed lookup is repeated.
LIMIT_S, AGAIN_S = 30.0, 300.0

_ID = re.compile(r"[a-z]+\d+(-[a-z]+\d+)?-az\d+")


class ZonesError(Exception):
    """The names of zones are unknown; the message says why."""


def as_written(zone: str) -> str:
    """The namer for catalogs that have names."""
    return zone


def name_only(zone: str) -> str:
    """The namer for files that users write of AWS.

    Raises:
        ValueError: the zone is an id.
    """
    if _ID.fullmatch(zone):
        raise ValueError(
            f"AvailabilityZone: {zone!r} is the id of a zone, which each account has its own name for; "
            "write that name, such as us-east-1b, or nothing for any zone of the region"
        )
    return zone


def ask_skypilot(ids: list[str]) -> dict[str, str]:
    """The names that SkyPilot uses. Blocks, for minutes if AWS does not answer.

    Raises:
        ZonesError: SkyPilot has no credentials and no names from before.
        Exception: as of its libraries.
    """
    load()
    from sky.catalog import aws_catalog  # noqa: PLC0415 - an extra, and slow to import

    rows = import_module("pandas").DataFrame({"AvailabilityZone": ids, "Id": ids})
    with aws_catalog._apply_az_mapping_lock:  # SkyPilot calls it under this lock
        named = aws_catalog._fetch_and_apply_az_mapping(rows)
    if named is rows:
        raise ZonesError("SkyPilot finds no AWS credentials where Starburst runs")
    return dict(zip(named["Id"], named["AvailabilityZone"], strict=True))


@dataclass(slots=True)
class _Lookup:
    ids: frozenset[str]
    #: Monotonic seconds: until when the answer is waited for; and from when on a failure is retried.
    until: float
    again_at: float
    answer: Future[dict[str, str]] = field(default_factory=Future)


class ZoneNames:
    """The names, looked up once. Any thread may call it; callers share one lookup."""

    def __init__(self, ask: ZoneLookup = ask_skypilot, limit_s: float = LIMIT_S) -> None:
        self._ask = ask
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._lookup: _Lookup | None = None
        self._names: dict[str, str] = {}
        #: Why the names are unknown; "" if they are known, or were not looked up.
        self.trouble = ""
        self._told = ""

    def namer(self, ids: Iterable[str]) -> ZoneNamer:
        """The namer for a catalog: zones that the account does not have get no offer, as in SkyPilot; if the
        names are unknown, offers are for any zone."""
        try:
            names = self._of(frozenset(ids))
        except ZonesError as error:
            self.trouble = str(error)
            return lambda _id: ""
        self.trouble = ""
        return names.get

    def tell(self) -> None:
        """Log once that the names are unknown."""
        if self.trouble and not self._told:
            log.warning(
                "zone-names-unknown",
                cloud="aws",
                error=self.trouble,
                offers="by region, at the price of the dearest zone",
            )
        self._told = self.trouble

    def _of(self, ids: frozenset[str]) -> Mapping[str, str]:
        with self._lock:
            lookup = self._lookup
            if lookup is None or self._is_stale(lookup, ids):
                lookup = self._lookup = self._begin(ids)
        wait([lookup.answer], max(0.0, lookup.until - time.monotonic()))
        try:
            if not lookup.answer.done():
                raise ZonesError(f"AWS has not told them within {self._limit_s:g} s")
            self._names = lookup.answer.result()
        except ZonesError:
            if not self._names:
                raise
        return self._names

    def _is_stale(self, lookup: _Lookup, ids: frozenset[str]) -> bool:
        if not lookup.answer.done():
            return False
        if lookup.answer.exception() is not None:
            return time.monotonic() >= lookup.again_at
        return not ids <= lookup.ids

    def _begin(self, ids: frozenset[str]) -> _Lookup:
        now = time.monotonic()
        lookup = _Lookup(ids, now + self._limit_s, now + AGAIN_S)

        def work() -> None:
            try:
                # An id without a name is returned as itself.
                names = {id_: name for id_, name in self._ask(sorted(ids)).items() if name != id_}
                if not names:
                    raise ZonesError("SkyPilot has a name for none of the catalog's zones")
            except ZonesError as error:
                lookup.answer.set_exception(error)
            except BaseException as error:  # AWS's and its libraries'
                told = str(error).strip().splitlines() or [type(error).__name__]
                lookup.answer.set_exception(ZonesError(told[0]))
            else:
                lookup.answer.set_result(names)

        # A daemon thread does not hold up the program's end; a late answer serves the next caller.
        threading.Thread(target=work, name="zone-names", daemon=True).start()
        return lookup
