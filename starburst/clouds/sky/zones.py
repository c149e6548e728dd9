"""AWS's zones by the names that they have in the user's own account.

SkyPilot's catalog of AWS has ids of zones, such as use1-az1, which are the same place for everybody. What is
asked for, rented and priced are names, such as us-east-1b, which AWS deals out to each account in its own
order. SkyPilot asks AWS for them once and keeps them in a file (sky/catalog/aws_catalog.py).
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

#: The names of those of these ids that the account has.
ZoneLookup: TypeAlias = "Callable[[list[str]], Mapping[str, str]]"
#: The name to offer a zone of a catalog by; "" for that of any zone, None not to offer it.
ZoneNamer: TypeAlias = "Callable[[str], str | None]"

#: Wall seconds: for SkyPilot to tell the names, which asks each region's AWS the first time; and after which
#: it is asked again if it could not.
LIMIT_S, AGAIN_S = 30.0, 300.0

_ID = re.compile(r"[a-z]+\d+(-[a-z]+\d+)?-az\d+")


class ZonesError(Exception):
    """The names of zones cannot be had; the message says why."""


def as_written(zone: str) -> str:
    """For catalogs that have names."""
    return zone


def name_only(zone: str) -> str:
    """For what a user writes of AWS.

    Raises:
        ValueError: it is an id.
    """
    if _ID.fullmatch(zone):
        raise ValueError(
            f"AvailabilityZone: {zone!r} is the id of a zone, which each account has its own name for; "
            "write that name, such as us-east-1b, or nothing for any zone of the region"
        )
    return zone


def ask_skypilot(ids: list[str]) -> dict[str, str]:
    """What SkyPilot itself goes by. Blocks, for minutes if AWS does not answer.

    Raises:
        ZonesError: it has no credentials, now or ever before.
        Exception: whatever its libraries do.
    """
    load()
    from sky.catalog import aws_catalog  # noqa: PLC0415 - an extra, and slow to import

    rows = import_module("pandas").DataFrame({"AvailabilityZone": ids, "Id": ids})
    with aws_catalog._apply_az_mapping_lock:  # its calls do not bear to be made by two threads at once
        named = aws_catalog._fetch_and_apply_az_mapping(rows)
    if named is rows:
        raise ZonesError("SkyPilot finds no AWS credentials where Starburst runs")
    return dict(zip(named["Id"], named["AvailabilityZone"], strict=True))


@dataclass(slots=True)
class _Asking:
    ids: frozenset[str]
    #: Until when its answer is waited for, and till when its failure is not tried to mend.
    until: float
    again_at: float
    answer: Future[dict[str, str]] = field(default_factory=Future)


class ZoneNames:
    """The names, asked for once. Any thread may ask; the first one's question is everybody's."""

    def __init__(self, ask: ZoneLookup = ask_skypilot, limit_s: float = LIMIT_S) -> None:
        self._ask = ask
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._asking: _Asking | None = None
        self._names: dict[str, str] = {}
        #: Why the names are not known; "" if they are, or were not asked for.
        self.trouble = ""
        self._told = ""

    def namer(self, ids: Iterable[str]) -> ZoneNamer:
        """For the zones of a catalog: what the account does not have is dropped, as SkyPilot drops it; if the
        names cannot be had, no zone is told from another."""
        try:
            names = self._of(frozenset(ids))
        except ZonesError as error:
            self.trouble = str(error)
            return lambda _id: ""
        self.trouble = ""
        return names.get

    def tell(self) -> None:
        """Say in the log that the names are not known, once."""
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
            asking = self._asking
            if asking is None or self._is_stale(asking, ids):
                asking = self._asking = self._begin(ids)
        wait([asking.answer], max(0.0, asking.until - time.monotonic()))
        try:
            if not asking.answer.done():
                raise ZonesError(f"AWS has not told them within {self._limit_s:g} s")
            self._names = asking.answer.result()
        except ZonesError:
            if not self._names:
                raise
        return self._names

    def _is_stale(self, asking: _Asking, ids: frozenset[str]) -> bool:
        if not asking.answer.done():
            return False
        if asking.answer.exception() is not None:
            return time.monotonic() >= asking.again_at
        return not ids <= asking.ids

    def _begin(self, ids: frozenset[str]) -> _Asking:
        now = time.monotonic()
        asking = _Asking(ids, now + self._limit_s, now + AGAIN_S)

        def work() -> None:
            try:
                # What has no name of its own has an id still.
                names = {id_: name for id_, name in self._ask(sorted(ids)).items() if name != id_}
                if not names:
                    raise ZonesError("SkyPilot has a name for none of the catalog's zones")
            except ZonesError as error:
                asking.answer.set_exception(error)
            except BaseException as error:  # AWS's and its libraries'
                told = str(error).strip().splitlines() or [type(error).__name__]
                asking.answer.set_exception(ZonesError(told[0]))
            else:
                asking.answer.set_result(names)

        # Nobody waits for it at the program's end; what comes late is for the next who asks.
        threading.Thread(target=work, name="zone-names", daemon=True).start()
        return asking
