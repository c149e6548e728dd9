"""Opens the backend or the store that a command works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.cli.backend.local import LocalBackend
from starburst.cli.service.server import chosen, unencrypted
from starburst.store.store import Store

if TYPE_CHECKING:
    from starburst.cli.backend.backend import Backend


@contextmanager
def open_backend() -> Iterator[Backend]:
    """The backend of the chosen server, otherwise of the default home.

    Raises:
        UserError: it cannot be used.
    """
    if chosen.get():
        from starburst.cli.backend.http import http_backend  # noqa: PLC0415 - slow to import

        with http_backend(chosen.get(), insecure=unencrypted.get()) as remote:
            yield remote
        return
    with open_store() as store:
        yield LocalBackend(Home.default(), store)


@contextmanager
def open_store(home: Home | None = None, busy_ms: int | None = None) -> Iterator[Store]:
    """The store of a home, by default the default one, created if missing; `busy_ms` as for `Store.open`.

    Raises:
        UserError: the home cannot be used.
        StoreError: the database is busy or damaged, or the disk is full.
    """
    home = home or Home.default()
    home.make()
    try:
        with Store.open(home.store, busy_ms) as store:
            yield store
    except SQLAlchemyError as error:
        raise UserError(f"{home.store_name}: {getattr(error, 'orig', None) or error}") from None
