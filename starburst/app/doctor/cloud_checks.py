"""Checks whether SkyPilot can rent machines for us; nothing is rented for them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from logging import CRITICAL, NOTSET, disable
from math import inf
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from starburst.aio import answer_within, in_thread
from starburst.app.config.sites import SkyConfig
from starburst.app.doctor.doctor import CheckStatus, DoctorCheck, fail, failed, ok, silent, warn
from starburst.app.errors import UserError
from starburst.app.wiring.sky import ZONES, need_sky, sky_offers
from starburst.clouds.sky.access.ports import (
    CloudAccess,
    SkyApi,
    SkyCredentialsError,
    SkyError,
    SkyUnreachableError,
)
from starburst.clouds.sky.access.sdk import SdkApi
from starburst.clouds.sky.machines.naming import is_cluster
from starburst.clouds.sky.offers import OfferName
from starburst.clouds.sky.place_patterns import PlacePattern
from starburst.clouds.sky.quotas import AwsQuotas, GcpQuotas, within_quotas
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from translator.carried import Bucket

P = ParamSpec("P")
T = TypeVar("T")

#: Timeouts, wall seconds: of the API server's first answer, including SkyPilot's import; and of its further
#: answers, all at once, and its catalogs. SkyPilot checks a cloud's credentials in about two seconds.
HEALTH_S, ASK_S = 30.0, 60.0
#: And of all of them at a start while machines are rented, whose leases are renewed only after it.
BRIEF_S = 15.0
#: The SkyPilot version that this code is written for and tested with.
TRIED, TRIED_NAME = (0, 14), "0.14"
ENDPOINT = "SKYPILOT_API_SERVER_ENDPOINT"
LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0")
#: Longest message of a library that is passed on whole.
LONG = 120
#: Programs that `clouds.sky.access.ssh` starts, by package.
PROGRAMS = {"ssh": "openssh-client", "tar": "tar"}
#: Remedies: credentials for SkyPilot, and the owner of a bucket.
LOGINS = {"aws": "aws configure", "gcp": "gcloud auth application-default login"}
BUCKETS = {"s3": "aws", "gs": "gcp"}
#: The remedy for a server that is slow or silent, whatever was asked.
SLOW = "see what it is busy with: sky api status; and the load of its machine"
#: The AWS permission that SkyPilot needs for zone names.
ZONES_ASK = "ec2:DescribeRegions and ec2:DescribeAvailabilityZones"


async def cloud_checks(
    config: SkyConfig, api: SkyApi | None = None, *, whole: bool = True, brief: bool = False
) -> list[DoctorCheck]:
    """All checks up to a fatal one; not `whole`: only those that a start needs; `brief`: within `BRIEF_S`."""
    found = [_skypilot()]
    if found[-1].status is not CheckStatus.FAIL:
        with _quiet():
            try:
                with answer_within(BRIEF_S if brief else inf):
                    # In sequence: two threads that import SkyPilot for the first time may deadlock.
                    server = await _server_checks(api or SdkApi(), config, whole)
                    # The server, the account or the network may have changed, not the config.
                    found += [replace(check, may_pass=True) for check in server]
                    found += await _offers(config, whole)
            except TimeoutError:
                found.append(silent("cloud", f"not all is known of it within {BRIEF_S:g} s", SLOW))
    return [*found, _programs()]


def _skypilot() -> DoctorCheck:
    """SkyPilot is installed, in a supported version."""
    try:
        need_sky()
        told = version("skypilot")
    except UserError as error:
        (check,) = failed("extra", error)
        return check
    except PackageNotFoundError:
        return warn("skypilot", f"its version is not known; Starburst was tried with {TRIED_NAME}")
    return _tried("skypilot", told, told, f"pip install 'skypilot>={TRIED_NAME}.1'")


def _tried(check: str, release: str, found: str, mend: str) -> DoctorCheck:
    numbers = tuple(map(int, re.findall(r"\d+", release)[:2]))
    if numbers and numbers < TRIED:
        return fail(check, f"{found}; Starburst needs {TRIED_NAME} or newer", mend)
    if numbers != TRIED:
        return warn(check, f"{found}; Starburst was tried with {TRIED_NAME} only")
    return ok(check, found)


def _programs() -> DoctorCheck:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        mend = f"install {' and '.join(PROGRAMS[name] for name in missing)}"
        return fail("programs", f"no {' and no '.join(missing)} on PATH to reach machines with", mend)
    return ok("programs", ", ".join(PROGRAMS))


# --- the API server and its clouds -----------------------------------------------------------------


async def _server_checks(api: SkyApi, config: SkyConfig, whole: bool) -> list[DoctorCheck]:
    named = _named(config)
    if config.api_server is not None:
        os.environ[ENDPOINT] = config.api_server  # as a start does it, before SkyPilot is imported
    server = await _server(api, named)
    if server.status is CheckStatus.FAIL:
        return [server]
    clouds = list(config.clouds)
    volumes = sorted({store.source for store in config.stores().values() if isinstance(store, Bucket)})
    owners = {url: BUCKETS.get(url.partition(":")[0], "") for url in (*volumes, config.bucket or "")}
    clouds += sorted({owner for owner in owners.values() if owner} - set(clouds))
    access, machines = await asyncio.gather(
        _asked("credentials", api.check(clouds), f"see sky check {' '.join(clouds)}, correct cloud.clouds"),
        _asked("machines", api.clusters(), "see the server's log: sky api logs --server-logs"),
    )
    found = [server]
    if isinstance(access, DoctorCheck):
        found.append(access)
    else:
        found += [_credentials(cloud, access[cloud]) for cloud in config.clouds]
        if not any(check.status is CheckStatus.FAIL for check in found):
            found += _bucket(config, access.get(owners[config.bucket or ""]), whole)
            found += [_storage("volumes", url, access.get(owners[url])) for url in volumes]
    if isinstance(machines, DoctorCheck):
        return [*found, machines]
    return [*found, _machines([cluster.name for cluster in machines])]


def _named(config: SkyConfig) -> str:
    """The setting that names the API server; "" for SkyPilot's own server on this machine."""
    if config.api_server is not None:
        return "cloud.api_server"
    return ENDPOINT if ENDPOINT in os.environ else ""


async def _server(api: SkyApi, named: str) -> DoctorCheck:
    """The API server answers, accepts our credentials, and supports the SDK's version."""
    address = named or "SkyPilot's API server"
    try:
        with answer_within(HEALTH_S):
            address = await api.address()
        with answer_within(HEALTH_S):
            release = await api.health()
    except SkyCredentialsError:
        return fail("api-server", f"{address} wants to know who you are", f"sky api login -e {address}")
    except (SkyUnreachableError, TimeoutError) as error:
        mend = _mend(address, named)
        return silent("api-server", f"{address} does not answer{_why(error)}", mend)
    except SkyError as error:
        return fail("api-server", f"{address}: {error}")
    return _tried("api-server", release, f"{address}, SkyPilot {release}", "upgrade it")


def _mend(address: str, named: str) -> str:
    local = urlsplit(address).hostname in LOOPBACK
    if local and not named:
        return "sky api start"
    where = named or "api_server.endpoint in ~/.sky/config.yaml"
    if local:
        return f"start it (sky api start), or correct {where}"
    return f"check that the server runs, {where}, and the network between"


def _why(error: Exception) -> str:
    """The operating system's message inside a long one of an HTTP library."""
    text = str(error)
    told = re.search(r"\[Errno -?\d+\] ([^'\")\]]+)|(timed out)", text)
    if told is None:
        return f" ({text})" if len(text) < LONG else ""
    return f" ({(told[1] or told[2]).strip()})"


async def _asked(check: str, call: Coroutine[Any, Any, T], mend: str) -> T | DoctorCheck:
    """The answer, or the failed check."""
    try:
        with answer_within(ASK_S):
            return await call
    except (SkyUnreachableError, TimeoutError) as error:
        found = str(error) or f"SkyPilot's API server has not answered for {ASK_S:g} s"
        return silent(check, found, SLOW)
    except SkyError as error:
        return fail(check, str(error), mend)


def _credentials(cloud: str, access: CloudAccess) -> DoctorCheck:
    if "compute" in access.enabled:
        return ok("credentials", f"{cloud}: SkyPilot may use {' and '.join(sorted(access.enabled))}")
    return fail("credentials", *_refused(cloud, access, "compute", f"{cloud} is not enabled"))


def _refused(cloud: str, access: CloudAccess, ability: str, found: str) -> tuple[str, str]:
    """A failed check with SkyPilot's reason and the remedy."""
    reason = access.reasons.get(ability, "")
    again = f"sky check {cloud}"
    if "allowed_clouds" in reason:
        return f"{found} ({reason})", f"add it there, then {again}"
    login = LOGINS.get(cloud, "") if "redentials" in reason else ""
    mend = f"where the API server runs: {login or 'correct it'}, then {again}"
    return f"{found} ({reason or 'SkyPilot gives no reason'})", mend


def _bucket(config: SkyConfig, access: CloudAccess | None, whole: bool) -> list[DoctorCheck]:
    """Checkpoints of rented machines have a bucket."""
    bucket = config.bucket
    if bucket is None:
        if whole and config.spot != "never":
            found = "none: what a job saves on a spot machine goes with the machine when that is taken away"
            return [warn("bucket", found, "set cloud.bucket")]
        return []
    return [_storage("bucket", bucket, access)]


def _storage(check: str, bucket: str, access: CloudAccess | None) -> DoctorCheck:
    """SkyPilot may use the storage of the bucket's cloud."""
    if access is None:
        return warn(check, f"{bucket}: whether SkyPilot may use it is seen at the first launch only")
    if "storage" in access.enabled:
        return ok(check, f"{bucket}; whether machines may write there is seen at the first launch only")
    cloud = BUCKETS[bucket.partition(":")[0]]
    return fail(check, *_refused(cloud, access, "storage", f"{bucket}: no storage of {cloud} for us"))


def _machines(names: list[str]) -> DoctorCheck:
    """Machines can be listed."""
    ours = sum(map(is_cluster, names))
    counted = f"{len(names)} now, {ours} of them Starburst's" if names else "none now"
    return ok("machines", f"{counted}; whether the account may rent more is seen at the first launch only")


# --- offers ----------------------------------------------------------------------------------------


async def _offers(config: SkyConfig, whole: bool) -> list[DoctorCheck]:
    try:
        with answer_within(ASK_S):
            return await in_thread(partial(_offers_now, config, whole))
    except TimeoutError:
        found = f"SkyPilot's catalogs are not read within {ASK_S:g} s: this machine or its network is slow"
        return [silent("offers", found, "try again, or set cloud.prices to a CSV file in their form")]


def _offers_now(config: SkyConfig, whole: bool) -> list[DoctorCheck]:
    try:
        offers = sky_offers(config)
        if not offers:
            return [fail("offers", *_nothing_left(config))]
        found = [ok("offers", _sum(config, offers))]
        if whole:
            found += [warn("offers", *strange) for strange in _strangers(config, offers)]
            found += _unpriced(offers)
            found += _zones(config)
            found += _quotas(within_quotas(offers, (AwsQuotas(), GcpQuotas())))
        return found
    except UserError as error:
        (check,) = failed("offers", UserError(str(error).removeprefix("cloud: ")))
        return [check if config.prices else fail("offers", check.found, _SUPPLY)]
    except Exception as error:  # SkyPilot downloads a catalog, and its libraries may raise anything
        why = " ".join(str(error).split()).partition(" among ")[0] or type(error).__name__
        return [silent("offers", f"SkyPilot has no catalog of {', '.join(config.clouds)} ({why})", _SUPPLY)]


_SUPPLY = "let it reach its catalogs, or set cloud.prices to a CSV file in their form"


def _sum(config: SkyConfig, offers: list[Offer]) -> str:
    source = "SkyPilot's catalogs" if config.prices is None else config.prices
    regions = Counter(offer.region for offer in offers)
    types = {OfferName.parse(offer.name).instance_type for offer in offers}
    found = f"{len(offers)} from {source}: {_count(types, 'type')} in {_count(regions, 'region')}"
    per_gpu = [
        (Money(offer.price_per_hour.micro_usd // offer.resources.gpus), offer.name)
        for offer in offers
        if offer.price_per_hour is not None and offer.resources.gpus
    ]
    if not per_gpu:
        return f"{found}, none with GPUs at a known price"
    price, name = min(per_gpu)
    return f"{found}, the cheapest GPU {price} an hour ({name})"


def _count(things: set[str] | Counter[str], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _quotas(offers: list[Offer]) -> list[DoctorCheck]:
    barred = [offer for offer in offers if offer.barred]
    if not barred:
        return []
    found = f"{len(barred)} of {len(offers)} offers are above quotas of the account: {barred[0].barred}"
    return [
        warn("quotas", found, "ask the cloud for more (AWS: Service Quotas), or leave them out by cloud.deny")
    ]


def _unpriced(offers: list[Offer]) -> list[DoctorCheck]:
    unknown = sum(offer.price_per_hour is None for offer in offers)
    if not unknown:
        return []
    found = f"{unknown} of {len(offers)} without a known price, which counts as dearer than any other"
    return [warn("offers", found, "give them one in cloud.prices")]


def _zones(config: SkyConfig) -> list[DoctorCheck]:
    """AWS offers can be restricted to zones."""
    if config.prices is not None or "aws" not in config.clouds or not ZONES.trouble:
        return []
    found = (
        f"the names of AWS's zones in your account are not known ({ZONES.trouble}): a region counts as the "
        "dearest of its zones, and no job can ask for a zone"
    )
    return [warn("zones", found, f"where Starburst runs: {LOGINS['aws']}, with leave for {ZONES_ASK}")]


#: Fields that filter the catalogs, with the remedy for each.
WIDE: dict[str, Any] = {"regions": [], "instance_types": [], "spot": "also", "allow": [], "deny": []}


def _without(config: SkyConfig, *fields: str) -> list[Offer]:
    return sky_offers(config.model_copy(update={field: WIDE[field] for field in fields}))


def _nothing_left(config: SkyConfig) -> tuple[str, str]:
    """The fields that exclude every offer of the catalogs."""
    everything = _without(config, *WIDE)
    if not everything:
        return f"{config.prices or 'the catalog of ' + ', '.join(config.clouds)} has no usable row", _SUPPLY
    strangers = _strangers(config, everything)
    if strangers:
        return strangers[0]
    narrow = [field for field in WIDE if getattr(config, field) != WIDE[field]]
    gains = {field: len(_without(config, field)) for field in narrow}
    told = [f"{count} without cloud.{field}" for field, count in gains.items() if count]
    found = f"none is left by {', '.join(f'cloud.{field}' for field in narrow)}"
    return f"{found}; there would be {', '.join(told) or f'{len(everything)} without all of them'}", ""


def _strangers(config: SkyConfig, offers: list[Offer]) -> list[tuple[str, str]]:
    """Regions and types of the config that no offer has."""
    places = [OfferName.parse(offer.name) for offer in offers]
    has = {"regions": {at.region for at in places}, "instance_types": {at.instance_type for at in places}}
    found = []
    for field, known in has.items():
        for name in getattr(config, field):
            if name not in known:
                close = get_close_matches(name, known, n=1, cutoff=0.85)
                mend = f"did you mean {close[0]}?" if close else f"there are {_some(sorted(known))}"
                found.append((f"cloud.{field}: no offer has {name}", mend))
    if config.deny:
        places = [OfferName.parse(offer.name) for offer in _without(config, "deny")]
    for field in ("allow", "deny"):
        for text in getattr(config, field):
            pattern = PlacePattern.parse(text)
            if not any(pattern.matches(at.cloud, at.region, at.instance_type) for at in places):
                found.append((f"cloud.{field}: no offer is {text}", "write CLOUD/REGION/TYPE, * for any"))
    return found


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


@contextmanager
def _quiet() -> Iterator[None]:
    """Redirect stdout: SkyPilot logs to it on import, but it carries our answers."""
    disable(CRITICAL)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        disable(NOTSET)
