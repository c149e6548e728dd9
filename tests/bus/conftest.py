from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.store.store import Store
from tests.bus.broker import Mosquitto


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "starburst.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """The scheduler's."""
    with Store.open(path) as opened:
        yield opened


@pytest.fixture
def reader(path: Path, store: Store) -> Iterator[Store]:
    """The bus's own, to the same database."""
    with Store.open(path) as opened:
        yield opened


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    one = Mosquitto(tmp_path / "broker")
    one.start()
    yield one
    one.stop()
