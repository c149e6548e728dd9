"""A long queue is loaded without garbage collections in between."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from starburst.app.wiring import resuming
from starburst.core.model.settings import Settings
from starburst.core.views.snapshot import Snapshot
from starburst.store.errors import StoreError
from starburst.store.store import Store


def test_the_collector_is_off_while_the_state_is_loaded_and_on_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def snapshot(_store: Store) -> Snapshot:
        seen.append(gc.isenabled())
        return Snapshot()

    monkeypatch.setattr(Store, "snapshot", snapshot)
    with Store.open(tmp_path / "starburst.db") as store:
        resuming.resume(Settings(), store)
    assert seen == [False]
    assert gc.isenabled()


def test_the_collector_is_on_after_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    with Store.open(tmp_path / "starburst.db") as store:
        store.set_fact("facts", {"now": "yesterday"})
        with pytest.raises(StoreError):
            resuming.resume(Settings(), store)
    assert gc.isenabled()
