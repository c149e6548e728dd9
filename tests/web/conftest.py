"""A morning's past, the API on it, and somebody who asks."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from httpx import Response

from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.store import tokens
from starburst.store.store import Store
from starburst.store.tokens import Role, Token
from starburst.web.app import make_app, serve
from starburst.web.context import AppContext
from tests.cli.past import NOON, Past
from tests.web.browser import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would have another client than ours
    from starlette.testclient import TestClient

API = "/api/v1"
HERE = "http://127.0.0.1:8585"


class Time:
    """A clock that goes when it is told to."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as it:
        yield it


@pytest.fixture(scope="session")
def morning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that most tests ask: made once, to be copied."""
    database = tmp_path_factory.mktemp("morning") / "home" / "starburst.db"
    with Past.begin(database, NOON) as begun:
        begun.morning()
    return database


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("STARBURST_HOME", str(path))
    return path


@pytest.fixture
def past(home: Path) -> Iterator[Past]:
    """A scheduler whose clock stands still at noon."""
    with Past.begin(home / "starburst.db", NOON) as begun:
        begun.morning()
        yield begun


@pytest.fixture
def app_context(request: pytest.FixtureRequest, home: Path, morning: Path) -> Iterator[AppContext]:
    """Of that scheduler if the test has one."""
    if "past" in request.fixturenames or request.config.getoption("postgres"):  # files can be copied
        request.getfixturevalue("past")
    else:
        home.mkdir(mode=0o700)
        shutil.copy(morning, home)
    with Store.open(home / "starburst.db") as store:
        yield AppContext(Home(home), store)


@pytest.fixture
def wall() -> Time:
    return Time(1_800_000_000.0)


@pytest.fixture
def clock() -> Time:
    return Time(0.0)


Ask = Callable[..., Response]


@pytest.fixture
def settings() -> HttpConfig:
    return HttpConfig()


@cache
def api_of_process() -> FastAPI:
    """The API and the login, which serve one test after another: making them takes as long as ten requests.

    Its health and its pages are those of a home without anything; `ask` asks for none of them.
    """
    with TemporaryDirectory() as root, Store.open(Path(root) / "home" / "starburst.db") as nothing:
        return make_app(AppContext(Home(Path(root) / "home"), nothing), HttpConfig())


@pytest.fixture
def ask(app_context: AppContext, settings: HttpConfig, wall: Time, clock: Time) -> Iterator[Ask]:
    """Sends a request to the API, with a token if one is given; a bug is a 500."""
    app = api_of_process()
    serve(app, app_context, settings, clock=clock, wall=wall)
    with TestClient(app, base_url=HERE, raise_server_exceptions=False, follow_redirects=False) as client:

        def ask(method: str, path: str, token: str | None = None, **more: Any) -> Response:
            headers = {**more.pop("headers", {})}
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            client.cookies.clear()
            where = path if path.startswith(("/login", "/open")) else API + path
            return client.request(method, where, headers=headers, **more)

        yield ask


@pytest.fixture
def token(app_context: AppContext, wall: Time) -> Callable[..., str]:
    """Makes a token."""

    def token(role: str, *queues: str, name: str = "", expires_at: float | None = None) -> str:
        made = Token(name or role, Role(role), queues or None, wall.now, expires_at)
        return tokens.create(app_context.store, made)

    return token
