"""A replica that begins to lead loads its queue beside its event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.app.config import Config
from starburst.app.config.home import Home
from starburst.cli.service import replica
from starburst.cli.service.replica import Replica
from starburst.core.scheduler import Scheduler
from starburst.store.store import Store


class LoadedError(Exception):
    """The queue was loaded; nothing more is to happen."""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    old = signal.getsignal(signal.SIGCONT)
    yield
    signal.signal(signal.SIGCONT, old)


def test_the_event_loop_goes_on_while_the_queue_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = threading.Event()

    def resume(_settings: object, _store: Store) -> Scheduler:
        assert going.wait(5.0), "the event loop stood still"
        raise LoadedError

    async def main(leading: Replica) -> None:
        asyncio.get_running_loop().call_later(0.01, going.set)
        await leading.run(standby=False)

    monkeypatch.setattr(replica, "resume", resume)
    home = Home(tmp_path / "home")
    with home.lock() as held, Store.open(home.store) as store, pytest.raises(LoadedError):
        asyncio.run(main(Replica(home, Config(), store, held, None, "", text=False)))
