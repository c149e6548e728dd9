"""What every command starts with: the home, its store, its clock, and whether a scheduler runs there."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from starburst.app.config.home import Home
from starburst.app.doctor.unknown_machines import MEND, forgotten, told
from starburst.app.errors import UserError
from starburst.cli.service.server import chosen, unencrypted
from starburst.store import queries
from starburst.store.store import Store

if TYPE_CHECKING:
    from starburst.cli.backend.backend import Backend


@contextmanager
def open_backend() -> Iterator[Backend]:
    """The Starburst that a command is about: of the server that was named, else of the home.

    Raises:
        UserError: it cannot be used.
    """
    if chosen.get():
        from starburst.cli.backend.over_http import http_backend  # noqa: PLC0415 - slow to import

        with http_backend(chosen.get(), insecure=unencrypted.get()) as remote:
            yield remote
        return
    from starburst.cli.backend.at_home import LocalBackend  # noqa: PLC0415 - it needs this module

    with open_store() as store:
        yield LocalBackend(Home.default(), store)


@contextmanager
def open_store(busy_ms: int | None = None) -> Iterator[Store]:
    """The store of the default home, made if there is none; `busy_ms` as for `Store.open`.

    Raises:
        UserError: the home cannot be used.
        StoreError: its database is busy, damaged, or has no room.
    """
    home = Home.default()
    home.make()
    try:
        with Store.open(home.database, busy_ms) as store:
            yield store
    except SQLAlchemyError as error:
        raise UserError(f"{home.database}: {getattr(error, 'orig', None) or error}") from None


def now_of(store: Store) -> float:
    """The present on the scheduler's clock."""
    return queries.pace(store).scheduler_time(time.time())


def note_if_forgotten() -> None:
    """Say so when SkyPilot has lost machines of this home that run."""
    if not chosen.get() and (lost := forgotten(Home.default())):
        print(f"note: {told(lost)}; {MEND}", file=sys.stderr)


def note_if_down() -> None:
    """Say so when no scheduler runs: what is shown stands still, what is asked for waits in the store."""
    home = Home.default()
    if home.scheduler_pid() is None:
        print(f"note: no starburst runs in {home.root}; start it with: starburst up", file=sys.stderr)
