"""Puts SkyPilot's cloud together: the one place where its parts meet."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.config.sites import SkyConfig
from starburst.app.errors import UserError
from starburst.clouds.sky.access.cloud_api import ProvisionApi
from starburst.clouds.sky.access.sdk import SdkApi
from starburst.clouds.sky.access.ssh import SshContact
from starburst.clouds.sky.cloud import SkyCloud
from starburst.clouds.sky.journal import FileNotes
from starburst.clouds.sky.offers import CatalogError, Wanted, cached, catalog_offers, read_offers
from starburst.clouds.sky.runs.runner import RayRunner
from starburst.clouds.sky.runs.runtime_values import Admit, Source, admit_all
from starburst.clouds.sky.runs.storage import NO_STORES
from starburst.clouds.sky.zones import ZoneNames
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from translator.carried import CloudStorage

#: The tag of every machine that any Starburst rents.
OWNER = "starburst"
#: AWS's zones as the user's account has them, once for the process, as SkyPilot has them.
ZONES = ZoneNames()


def sky_cloud(
    config: SkyConfig,
    home: Home,
    checkpoints: Path,
    *,
    pace: Pace,
    now: Callable[[], float],
    controller: str,
    source: Source | None,
    max_log: int,
    stores: Mapping[str, CloudStorage] = NO_STORES,
    admit: Admit = admit_all,
) -> SkyCloud:
    """The cloud that the config describes; `checkpoints` is where those of its runs are brought home to.

    Of a task's log `max_log` bytes are kept. `source` reads what runs take from the cluster, `stores` are
    mapped to its volumes; `admit` says which runs may have that.

    Raises:
        UserError: SkyPilot is not installed, or its catalog cannot be read.
    """
    if config.api_server is not None:
        os.environ["SKYPILOT_API_SERVER_ENDPOINT"] = config.api_server
    need_sky()
    root = home.cloud / "sky"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    contact = SshContact(root)
    atexit.register(contact.close)
    sky_offers(config)  # refuses what can never be read
    offers = cached(partial(_read_aloud, config))
    return SkyCloud(
        SdkApi(),
        contact,
        ProvisionApi(),
        RayRunner(contact),
        FileNotes(root / "notes"),
        offers=offers,
        home=home.cloud,
        checkpoints=checkpoints,
        pace=pace,
        now=now,
        owner=OWNER,
        controller=controller,
        lease_s=config.lease,
        idle_minutes=config.idle_minutes,
        launch_limit_s=config.launch_limit,
        bucket=config.bucket,
        source=source,
        max_log=max_log,
        stores=stores,
        admit=admit,
        own_prices=config.prices is not None,
    )


def sky_offers(config: SkyConfig) -> list[Offer]:
    """What may be rented: of SkyPilot's catalogs, or of the CSV file that the config names.

    Raises:
        UserError: SkyPilot is not installed, or a catalog cannot be read.
    """
    need_sky()
    try:
        return _read(config)
    except CatalogError as error:
        raise UserError(f"cloud: {error}") from None


def _read(config: SkyConfig) -> list[Offer]:
    wanted = Wanted(
        frozenset(config.instance_types),
        frozenset(config.regions),
        spot=config.spot != "never",
        on_demand=config.spot != "only",
    )
    if config.prices is not None:
        return read_offers(Path(config.prices), config.clouds[0], wanted)
    return [offer for cloud in config.clouds for offer in catalog_offers(cloud, wanted, ZONES)]


def _read_aloud(config: SkyConfig) -> list[Offer]:
    """For those who have a log."""
    offers = _read(config)
    ZONES.tell()
    return offers


def need_sky() -> None:
    """To be asked before anything of SkyPilot is used.

    Raises:
        UserError: it is not installed.
    """
    if find_spec("sky") is None:
        raise UserError("cloud.kind: skypilot: needs the extra: pip install 'starburst-scheduler[sky]'")
