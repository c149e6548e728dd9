"""Assembles the SkyPilot cloud from the config."""

from __future__ import annotations

import atexit
import os
from collections.abc import Collection, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.config.sites import SkyConfig
from starburst.app.errors import UserError
from starburst.clouds.sky.access.cloud_api import ProvisionApi
from starburst.clouds.sky.access.ports import SkyUnreachableError
from starburst.clouds.sky.access.sdk import SdkApi
from starburst.clouds.sky.access.ssh import SshTransport
from starburst.clouds.sky.cloud import SkyCloud
from starburst.clouds.sky.context import SkyClock, SkyContext, SkySettings
from starburst.clouds.sky.journal import FileJournal, claimed
from starburst.clouds.sky.offers import (
    CatalogError,
    OfferFilter,
    cached,
    catalog_offers,
    dearer_by,
    read_offers,
)
from starburst.clouds.sky.place_patterns import PlacePattern
from starburst.clouds.sky.quotas import AwsQuotas, GcpQuotas, RegionalQuotas, within_quotas
from starburst.clouds.sky.runs.inputs import RunInputs
from starburst.clouds.sky.zones import ZoneNames
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.runs.fence import NO_FENCE, LeaderFence, NotCertainError
from starburst.store.errors import FencedError

#: The owner label of every instance that any Starburst rents.
OWNER = "starburst"
#: Names of AWS's zones in the user's account, read once per process.
ZONES = ZoneNames()


def sky_cloud(
    config: SkyConfig,
    home: Home,
    checkpoints: Path,
    *,
    clock: SkyClock,
    controller: str,
    max_log: int,
    inputs: RunInputs | None = None,
    in_books: Collection[str] = (),
    fence: LeaderFence = NO_FENCE,
) -> SkyCloud:
    """The cloud that the config describes; checkpoints of its runs are fetched to `checkpoints`.

    `max_log` is the number of bytes kept of each task's output. `inputs` resolves ConfigMaps, Secrets and
    volumes of the cluster for the runs. `in_books` are the machines that have not ended by the store. `fence`
    is asked before each call that changes something.

    Raises:
        UserError: SkyPilot is not installed.
    """
    if config.api_server is not None:
        os.environ["SKYPILOT_API_SERVER_ENDPOINT"] = config.api_server
    need_sky()
    root = home.cloud / "sky"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    transport = SshTransport(root)
    atexit.register(transport.close)
    settings = SkySettings(
        owner=OWNER,
        controller=controller,
        logs=home.cloud / "runs",
        checkpoints=checkpoints,
        lease_s=config.lease,
        idle_minutes=config.idle_minutes,
        launch_limit_s=config.launch_limit,
        bucket=config.bucket,
        network_tier=config.network_tier,
        own_prices=config.prices is not None,
        extra=Money.of(config.extra_usd_per_hour),
        max_log=max_log,
    )
    sky, clouds = SdkApi(), ProvisionApi()
    sky.fence = clouds.fence = transport.fence = partial(_refuse_unless_certain, fence)
    context = SkyContext(
        sky,
        clouds,
        transport,
        _journal(root, fence),
        clock,
        settings,
        inputs or RunInputs(),
        fence.certain,
    )
    offers = cached(partial(_read_and_warn, config, (AwsQuotas(), GcpQuotas())))
    return SkyCloud(context, offers, in_books)


def _journal(root: Path, fence: LeaderFence) -> FileJournal:
    try:
        return claimed(root, fence)
    except NotCertainError:
        raise FencedError("another replica leads, and has the journal of the cloud") from None


def _refuse_unless_certain(fence: LeaderFence) -> None:
    """Raises SkyUnreachableError, after which calls are tried again."""
    try:
        fence.check()
    except NotCertainError as error:
        raise SkyUnreachableError(str(error)) from None


def sky_offers(config: SkyConfig) -> list[Offer]:
    """The offers: from SkyPilot's catalogs, or from the CSV file that the config names.

    Raises:
        UserError: SkyPilot is not installed, or a catalog cannot be read.
    """
    need_sky()
    try:
        return _read(config)
    except CatalogError as error:
        raise UserError(f"cloud: {error}") from None


def _read(config: SkyConfig) -> list[Offer]:
    wanted = OfferFilter(
        frozenset(config.instance_types),
        frozenset(config.regions),
        spot=config.spot != "never",
        on_demand=config.spot != "only",
        allow=tuple(map(PlacePattern.parse, config.allow)),
        deny=tuple(map(PlacePattern.parse, config.deny)),
    )
    if config.prices is not None:
        offers = read_offers(Path(config.prices), config.clouds[0], wanted)
    else:
        offers = [offer for cloud in config.clouds for offer in catalog_offers(cloud, wanted, ZONES)]
    return dearer_by(Money.of(config.extra_usd_per_hour), offers)


def _read_and_warn(config: SkyConfig, quotas: Sequence[RegionalQuotas]) -> list[Offer]:
    """The offers, with those barred that are above a quota; logs if zones or quotas are unknown."""
    offers = _read(config)
    ZONES.tell()
    return within_quotas(offers, quotas)


def need_sky() -> None:
    """Check that SkyPilot is installed; called before anything of it is used.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("sky") is None:
        raise UserError("cloud.kind: skypilot: needs the extra: pip install 'starburst-hybrid[sky]'")
