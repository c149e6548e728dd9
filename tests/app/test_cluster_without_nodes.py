"""A cluster that has no nodes now, as one scaled to zero: what is known of the cloud stays known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.app.wiring.stored import idle_core, live_core
from starburst.core.model.events import NodesChanged, OffersChanged
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.domain.job import CloudChoice, Phase
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.store.samples import OFFER, step, submission

CONFIG = {"cluster": {"kind": "kubernetes"}, "cloud": {"kind": "skypilot"}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """That of a scheduler that has listed both sites."""
    with Store.open(tmp_path / "starburst.db") as store:
        store.set_fact("config", CONFIG)
        scheduler = Scheduler(Settings(packer="stratus", pack_window_s=60.0))
        store.commit(step(scheduler, [NodesChanged(()), OffersChanged((OFFER,))]))
        away = submission("away", cloud=CloudChoice.ONLY)
        store.submit([away], 0.0)
        store.commit(step(scheduler, (), 1.0, submissions=[away], request_seqs=[1]))
        assert scheduler.state.jobs["away"].phase is Phase.OFFLOADING
        yield store


def test_what_is_read_of_the_store_has_its_offers(store: Store) -> None:
    for core in (idle_core(store), live_core(store)):
        assert list(core.state.fleet.offers) == [OFFER.name]


def test_a_job_that_leaves_is_explained_as_leaving(store: Store) -> None:
    (row,) = queries.jobs(store)
    told = SnapshotCache(store).explanation(row)
    assert told.phase == row.phase == "offloading"
    assert told.sentence.startswith("leaves for the cloud")
