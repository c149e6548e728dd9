"""Puts a Starburst together from its home, config and store."""

from __future__ import annotations

import time
from collections.abc import Callable

from starburst.app.config import Config, parse_config
from starburst.app.controller import Controller
from starburst.app.home import Home
from starburst.clouds.local import LocalCloud
from starburst.clusters.local import LocalCluster
from starburst.core.events import NodesChanged, OffersChanged
from starburst.core.scheduler import Scheduler
from starburst.core.snapshot import restore
from starburst.core.state import Changes
from starburst.domain.clock import Pace
from starburst.store import queries
from starburst.store.store import Store


def build(
    home: Home, config: Config, store: Store, *, on_step: Callable[[Changes], None] | None = None
) -> Controller:
    """A controller that goes on where the store says; the config is noted there for the other commands."""
    store.set_fact("config", config.model_dump(mode="json"))
    pace = _pace(store, config)
    scheduler = restore(config.policy.settings(), store.snapshot())

    def now() -> float:
        return max(scheduler.now, pace.scheduler_time(time.time()))

    nodes = tuple(node for entry in config.cluster.nodes for node in entry.nodes())
    cluster = LocalCluster(nodes, home.cluster, home.checkpoints)
    cloud = LocalCloud(
        config.cloud.catalog(),
        home.cloud,
        home.checkpoints,
        pace=pace,
        now=now,
        lease_s=config.cloud.lease,
        owner="starburst",
        controller=_controller_id(store),
    )
    return Controller(store, scheduler, cluster, cloud, pace, on_step=on_step)


def live_core(store: Store) -> Scheduler:
    """The running scheduler's state as last committed, at the present time; for questions, not for changes.

    In a home where nothing ran yet it is the core that the stored or default config would start with.
    """
    config = stored_config(store)
    scheduler = restore(config.policy.settings(), store.snapshot())
    now = max(scheduler.now, queries.pace(store).scheduler_time(time.time()))
    if not scheduler.capacity.nodes:
        nodes = tuple(node for entry in config.cluster.nodes for node in entry.nodes())
        offers = tuple(entry.offer for entry in config.cloud.catalog())
        scheduler.handle([NodesChanged(nodes), OffersChanged(offers)], now)
    scheduler.now = now
    return scheduler


def stored_config(store: Store) -> Config:
    """The config that `starburst up` last ran with here; the default if it never did."""
    data = store.fact("config")
    return Config() if data is None else parse_config(data, "stored config")


def _pace(store: Store, config: Config) -> Pace:
    """The clock goes on from where it was; a new speed bends it from now on and never turns it back."""
    pace, wall = queries.pace(store), time.time()
    if pace.speed != config.clock.speed or store.fact("clock") is None:
        pace = pace.with_speed(config.clock.speed, wall)
        store.set_fact("clock", {"origin": pace.origin, "speed": pace.speed, "start": pace.start})
    return pace


def _controller_id(store: Store) -> str:
    return str(store.fact("controller"))
