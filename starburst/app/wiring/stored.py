"""A copy of the scheduler from the store, for commands and requests that only read."""

from __future__ import annotations

import json
import time
from functools import lru_cache

from starburst.app.config import Config, parse_config
from starburst.app.config.sites import KubernetesConfig, SkyConfig
from starburst.app.jobs.caps_view import open_books
from starburst.core.model.events import NodesChanged, OffersChanged
from starburst.core.scheduler import Scheduler
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import Snapshot
from starburst.store.listings import queries
from starburst.store.store import Store
from translator.carried import Carried
from translator.intake.rules import IntakeRules


def live_core(store: Store, *, waiting: bool = True) -> Scheduler:
    """A copy of the running scheduler's core as last committed, at the present time.

    `waiting=False`: without the jobs that hold no room, which may be a million.

    Where nothing was stored yet, as in a new home, it gets the nodes and offers of the stored or default
    config.
    """
    return core_of(store, store.snapshot(waiting=waiting))


def core_of(store: Store, snapshot: Snapshot) -> Scheduler:
    """The same from a snapshot, which may be a part of what is stored."""
    config = stored_config(store)
    scheduler = restore(config.settings(), snapshot)
    now = max(scheduler.state.now, queries.pace(store).scheduler_time(time.time()))
    state = scheduler.state
    if not (state.capacity.nodes or state.fleet.offers or state.jobs):
        offers = config.cloud.known_offers()
        scheduler.handle([NodesChanged(config.cluster.known_nodes()), OffersChanged(offers)], now)
    state.now = now
    open_books(store, scheduler, now)
    return scheduler


def idle_core(store: Store) -> Scheduler:
    """A scheduler with the nodes and offers of the running one, else of the config, and without any job."""
    config = stored_config(store)
    scheduler = Scheduler(config.settings())
    nodes, offers = queries.nodes(store), queries.offers(store)
    if not (nodes or offers):
        nodes, offers = config.cluster.known_nodes(), config.cloud.known_offers()
    scheduler.handle([NodesChanged(nodes), OffersChanged(offers)], 0.0)
    return scheduler


def stored_config(store: Store) -> Config:
    """The config that `starburst up` last ran with here; the default if it never did."""
    text = store.fact_text("config")
    return Config() if text is None else _parsed(text)


@lru_cache(maxsize=2)
def _parsed(text: str) -> Config:
    """A thousand queues take 40 ms to parse; configs are frozen."""
    return parse_config(json.loads(text), "stored config")


def intake_rules(config: Config) -> IntakeRules:
    """How manifests are judged; offloaded jobs get something of their cluster only from Kubernetes to
    SkyPilot.
    """
    native = isinstance(config.cluster, KubernetesConfig)
    sky = isinstance(config.cloud, SkyConfig)
    return IntakeRules(
        native=native,
        carries=Carried(config.stores()) if native and sky else None,
        offers=sky or bool(config.cloud.known_offers()),
        may_stay=config.policy.cannot_leave == "stay",
    )
