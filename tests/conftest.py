"""Settings of the whole test suite."""

from __future__ import annotations

import gc
import itertools
import json
import os
import secrets
import sqlite3
import ssl
import warnings
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine

from starburst.store import engine as engine_module
from starburst.store.databases import sqlite
from starburst.store.store import Store
from tests.postgres import Databases, server

# Examples are drawn from the test itself, so a red run is red again; no deadline, as machines are shared.
settings.register_profile(
    "starburst",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("starburst")


# A user's own server and store are asked nothing, whatever the shell has that tests are started from.
for name in ("SERVER", "STORE", "TOKEN", "INSECURE", "ADVERTISE", "REPORT", "REPORT_TOKEN"):
    os.environ.pop(f"STARBURST_{name}", None)


# Servers of tests have their own certificates: reading the roots of the host, 25 ms each time, is left out.
ssl.SSLContext.load_default_certs = lambda *_: None  # type: ignore[method-assign,assignment]


REAL_SERVERS_S = 2400.0
"""Seconds that a test against real servers may take, with their start; one that hangs ends with its stack."""


def pytest_configure(config: pytest.Config) -> None:
    """Against real servers, which are killed at any time, a socket that asyncio closes late is no failure.

    Nor is a listing of temporary directories that pytest leaves open where another run removes some of them.
    """
    if set(config.getoption("markexpr").split()) & {"kube", "sky", "gangs", "image"}:
        late = (
            r"Exception ignored in. <"
            r"(function (_Selector|_SSLProtocol|StreamWriter)|socket|posix\.ScandirIterator)"
        )
        config.addinivalue_line("filterwarnings", f"ignore:{late}:pytest.PytestUnraisableExceptionWarning")
        warnings.filterwarnings("ignore", late, pytest.PytestUnraisableExceptionWarning)  # at the end


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("postgres"):
        files = [item for item in items if item.get_closest_marker("sqlite")]
        config.hook.pytest_deselected(items=files)
        items[:] = [item for item in items if item not in files]
    for item in items:
        if _needs_servers(item):
            item.add_marker(pytest.mark.timeout(REAL_SERVERS_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collection has made lives till the end: later collections of garbage leave it out."""
    if not any(map(_needs_servers, session.items)):  # these wait more than they count
        gc.collect()
        gc.freeze()


def _needs_servers(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("kube", "sky", "ray", "gangs", "image"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--postgres", action="store_true", help="stores are databases of a PostgreSQL server")


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Iterator[Databases | None]:
    """What the stores of tests are in; None: in files of SQLite."""
    if not pytestconfig.getoption("postgres"):
        yield None
        return
    with server() as one:
        yield Databases(one)


@pytest.fixture(scope="session", autouse=True)
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """New files of SQLite are copies of one whose schema is migrated, with ids of their own: 2 ms, not 50."""
    template = tmp_path_factory.mktemp("store") / "template.db"
    Store.open(template).close()
    schema, make, drafts = template.read_bytes(), sqlite.make_file, itertools.count()

    def copied(path: Path) -> None:
        if not (path.exists() or path.parent.is_file()):
            draft = path.with_name(f"{path.name}.{next(drafts)}")
            make(draft)
            draft.write_bytes(schema)
            with closing(sqlite3.connect(draft)) as file, file:
                own = json.dumps(secrets.token_hex(4))  # as migration 0001 draws it
                file.execute("UPDATE facts SET body = ? WHERE key = 'controller'", [own])
            with suppress(FileExistsError):  # another was faster
                os.link(draft, path)
            draft.unlink()
        make(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "make_file", copied)
        yield


@pytest.fixture(autouse=True)
def stores(databases: Databases | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores that a test opens by a path are files of SQLite, or with --postgres databases of a server."""
    if databases is None:
        yield
        return
    opened: list[Store] = []
    make = Store.__init__

    def noted(store: Store, engine: Engine) -> None:
        make(store, engine)
        opened.append(store)

    monkeypatch.setattr(engine_module, "store_url", databases.url)
    monkeypatch.setattr(Store, "__init__", noted)
    yield
    for store in opened:  # psycopg warns of connections that are left to the collector of garbage
        store.close()
    databases.drop()


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Commands set up the log of their process; no test inherits it, bound to a stream that is closed."""
    yield
    structlog.reset_defaults()
