"""Opens the backend or the store that a command works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.cli.backend.lister import FileLister
from starburst.cli.service.server import chosen, unencrypted
from starburst.store.databases.sqlite_reader import open_current

if TYPE_CHECKING:
    from starburst.cli.backend.backend import Backend, JobLister
    from starburst.store.store import Store


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
    from starburst.cli.backend.local import LocalBackend  # noqa: PLC0415 - slow to import

    with open_store() as store:
        yield LocalBackend(Home.default(), store)


@contextmanager
def open_lister() -> Iterator[JobLister]:
    """As `open_backend`, for commands that only list jobs: a file that can be read as it is, is read alone.

    Raises:
        UserError: it cannot be used.
    """
    home = Home.default()
    if not chosen.get() and isinstance(home.store, Path):
        home.make()
        with open_current(home.store) as reader:
            if reader is not None:
                yield FileLister(home, reader)
                return
    with open_backend() as backend:
        yield backend


@contextmanager
def open_store(home: Home | None = None, busy_ms: int | None = None) -> Iterator[Store]:
    """The store of a home, by default the default one, created if missing; `busy_ms` as for `Store.open`.

    Raises:
        UserError: the home cannot be used.
        StoreError: the database is busy or damaged, or the disk is full.
    """
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - slow to import

    from starburst.store.store import Store  # noqa: PLC0415 - slow to import

    home = home or Home.default()
    home.make()
    try:
        with Store.open(home.store, busy_ms) as store:
            yield store
    except SQLAlchemyError as error:
        raise UserError(f"{home.store_name}: {getattr(error, 'orig', None) or error}") from None
