"""A full disk, a locked or broken store, no more open files: nothing is lost, nothing runs twice.

The attacker is anybody who can write to the same disk, open the database, or open files.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection

from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.app.daemon.home_watch import keep_watch
from starburst.app.daemon.performer import TRIES
from starburst.app.daemon.shortages import ShortageRetry, shortage_of
from starburst.app.errors import UserError
from starburst.domain.job import Site
from starburst.runs.ports import Report
from starburst.store import engine as engine_module
from starburst.store.errors import BusyError, DamagedError, DiskFullError
from starburst.store.store import Store
from starburst.web.app import make_app
from starburst.web.context import AppContext
from starburst.web.serving.server import serving
from tests.app.fakes import FakeSite
from tests.app.life import a_world, living
from tests.app.virtual import run
from tests.builders import job

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would have another client than ours
    from starlette.testclient import TestClient


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "starburst.db"


class Disk:
    """Takes what is written, or not."""

    full = False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Under every store: while it is full a transaction that writes fails at its end, and is undone."""
    disk, write = Disk(), Store.write

    @contextmanager
    def scarce(self: Store) -> Iterator[Connection]:
        with write(self) as conn:
            yield conn
            if disk.full:
                raise DiskFullError("the disk is full")

    monkeypatch.setattr(Store, "write", scarce)
    return disk


def starts(site: FakeSite) -> list[str]:
    return [call for call in site.calls if call.startswith("start ")]


# --- the scheduler, in virtual time -----------------------------------------------------------------------


def test_a_full_disk_is_waited_out_and_nothing_is_lost_or_run_twice(path: Path, disk: Disk):
    async def main() -> None:
        world = a_world(2)
        async with living(path, world) as life:
            life.submit(job("a", 2), job("b", 2), job("c", 1))
            await life.until(a="running")
            disk.full = True
            began = [*starts(life.cluster), *starts(life.cloud)]
            with pytest.raises(DiskFullError):
                life.submit(job("d", 1))
            await asyncio.sleep(60)  # a and b end meanwhile
            assert not life.task.done()
            assert [*starts(life.cluster), *starts(life.cloud)] == began, "nothing starts that is not stored"
            disk.full = False
            await life.until(a="succeeded", b="succeeded", c="succeeded")
            assert sorted([*starts(life.cluster), *starts(life.cloud)]) == [f"start {it}/1" for it in "abc"]
            assert set(life.phases()) == set("abc"), "what was refused is not there"
        assert world.broken == []

    run(main())


def test_a_scheduler_that_ends_on_a_full_disk_is_as_it_was_stored(path: Path, disk: Disk):
    async def main() -> None:
        world = a_world(1)
        async with living(path, world) as life:
            life.submit(job("a", 1), job("b", 1))
            await life.until(a="running")
            disk.full = True
            await asyncio.sleep(60)
        disk.full = False
        async with living(path, world) as life:
            await life.until(a="succeeded", b="succeeded")
        assert world.broken == []
        assert set(world.runs) == {("a", 1), ("b", 1)}

    run(main())


def test_what_sites_say_again_and_again_meanwhile_is_kept_once(path: Path, disk: Disk):
    class Chatty(FakeSite):
        async def watch(self, report: Report) -> None:
            while True:
                for event in self.world.facts(self.site, 0.0):
                    report(event)
                await asyncio.sleep(1)

    async def main() -> None:
        async with living(path, a_world(1)) as life:
            life.submit(job("a", 1))
            await life.until(a="running")
            disk.full = True
            chatty = asyncio.create_task(
                Chatty(life.cluster.world, Site.CLUSTER).watch(life.controller._report)
            )
            await asyncio.sleep(60)
            assert len(life.controller._reports) < 10
            disk.full = False
            await life.until(a="succeeded")
            chatty.cancel()

    run(main())


LACKS = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS]


@pytest.mark.parametrize("lacking", LACKS)
def test_what_the_machine_lacks_is_told_from_what_is_wrong(lacking: int):
    try:
        try:
            raise OSError(lacking, os.strerror(lacking), "/home/file")
        except OSError as error:
            raise RuntimeError("a layer above") from error
    except RuntimeError as error:
        found = shortage_of(error)
    assert found is not None
    assert found.detail == f"/home/file: {found.kind}"
    assert shortage_of(FileNotFoundError(errno.ENOENT, "No such file")) is None


def test_a_site_that_lacks_files_costs_no_job_a_try(path: Path):
    refusals = iter(range(TRIES + 2))

    def hook(what: str) -> None:
        if what.startswith("before start a") and next(refusals, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> None:
        async with living(path, a_world(1), hook) as life:
            life.submit(job("a", 1))
            await life.until(a="succeeded")
            assert not [call for call in life.cluster.calls if call.startswith("stop")]
            assert set(starts(life.cluster)) == {"start a/1"}

    run(main())


def test_a_watch_that_the_machine_interrupts_is_begun_again(path: Path):
    told: list[str] = []

    class Interrupted(FakeSite):
        left = 5

        async def watch(self, report: Report) -> None:
            if Interrupted.left:
                Interrupted.left -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            await FakeSite.watch(self, report)

    async def main() -> None:
        patience = ShortageRetry(lambda kind, _detail: told.append(kind))
        async with living(path, a_world(1), cluster=Interrupted, patience=patience) as life:
            life.submit(job("a", 1))
            await life.until(a="succeeded")

    run(main())
    assert told == ["this process has too many open files", ""], (
        "said once when it begins, once when it is over"
    )


def test_a_bug_is_not_waited_out(path: Path):
    class Broken(FakeSite):
        async def watch(self, report: Report) -> None:
            raise ValueError("a bug")

    async def main() -> None:
        async with living(path, a_world(1), cluster=Broken) as life:
            await asyncio.wait([life.task])

    with pytest.raises(ValueError, match="a bug"):
        run(main())


def test_a_write_lock_of_somebody_else_does_not_end_the_scheduler(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 0)  # virtual time does not pass while SQLite waits
    told: list[str] = []

    async def main() -> None:
        patience = ShortageRetry(lambda kind, _detail: told.append(kind))
        async with living(path, a_world(1), patience=patience) as life:
            life.submit(job("a", 1))
            await life.until(a="running")
            backup = sqlite3.connect(path, isolation_level=None)
            backup.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(60)
            assert not life.task.done()
            backup.execute("COMMIT")
            backup.close()
            await life.until(a="succeeded")
            assert starts(life.cluster) == ["start a/1"]

    run(main())
    assert told == ["the store is busy", ""]


# --- the file of the store --------------------------------------------------------------------------------


def test_who_holds_the_lock_is_named_and_the_database_is_not_called_damaged(path: Path):
    with Store.open(path, busy_ms=0) as store:
        thief = sqlite3.connect(path, isolation_level=None)
        thief.execute("BEGIN IMMEDIATE")
        with pytest.raises(BusyError) as said:
            store.set_fact("a", 1)
        thief.close()
        store.set_fact("a", 1)
    assert "is being written to by" in str(said.value)
    assert "move it away" not in str(said.value)


class Held:
    """A home that nobody touches."""

    def look(self) -> None:
        """All is well."""


def watched(path: Path, harm: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said when the database is harmed under a scheduler that has it open."""
    monkeypatch.setattr("starburst.app.daemon.home_watch.LOOK_S", 0.0)
    monkeypatch.setattr("starburst.app.daemon.home_watch.READ_S", 0.0)

    async def main() -> None:
        watching = asyncio.create_task(keep_watch(Held(), path, path.stat(), ShortageRetry()))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        assert not watching.done()
        if harm == "damaged":
            sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
            with path.open("r+b") as file:
                file.seek(4096)
                file.write(b"\xff" * 40_000)
        elif harm == "replaced":
            shutil.copy(path, path.with_name("copy"))
            path.with_name("copy").replace(path)
        else:
            path.unlink()
        await asyncio.wait_for(watching, 20)

    with Store.open(path) as store:
        store.set_fact("a", "x" * 100_000)
        with pytest.raises((UserError, DamagedError)) as said:
            asyncio.run(main())
    return str(said.value)


def test_a_database_that_is_damaged_under_the_scheduler_is_noticed(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert f"{path}: is damaged (" in watched(path, "damaged", monkeypatch)


@pytest.mark.parametrize("harm", ["replaced", "removed"])
def test_nothing_is_written_to_a_file_that_nobody_reads_any_more(
    path: Path, harm: str, monkeypatch: pytest.MonkeyPatch
):
    assert "was moved, removed or replaced while starburst ran" in watched(path, harm, monkeypatch)


# --- the API ----------------------------------------------------------------------------------------------


WHERE = "starburst doctor, on the machine that runs it, says where"
MANIFEST = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "a"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "x", "command": ["true"]}],
            }
        }
    },
}


@pytest.fixture
def api(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(engine_module, "TURN_S", 0.1)
    with Store.open(path, busy_ms=0) as store:
        app = make_app(AppContext(Home(path.parent), store), HttpConfig())
        with TestClient(app, base_url="http://127.0.0.1:8585", raise_server_exceptions=False) as client:
            client.app.state.store = store  # type: ignore[attr-defined]
            yield client


def test_slow_readers_hold_up_nobody_else(api: TestClient):
    store: Store = api.app.state.store  # type: ignore[attr-defined]
    with ExitStack() as slow:
        for _ in range(engine_module.READERS - 2):
            slow.enter_context(store.read())
        assert api.get("/api/v1/summary").status_code == 200
        for _ in range(2):
            slow.enter_context(store.read())
        answer = api.get("/api/v1/summary")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        store.set_fact("a", 1)  # whoever writes is not in line with them
    assert api.get("/api/v1/summary").status_code == 200


def test_a_request_that_has_to_write_is_told_to_come_again(api: TestClient, path: Path):
    thief = sqlite3.connect(path, isolation_level=None)
    thief.execute("BEGIN IMMEDIATE")
    answer = api.post("/api/v1/jobs", json=MANIFEST)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json()["error"] == f"the store is busy; {WHERE}", "and no path or program of the server's"
    assert api.get("/api/v1/jobs").status_code == 200, "who only looks needs no lock"
    thief.close()
    assert api.post("/api/v1/jobs", json=MANIFEST).status_code == 201


def test_without_room_a_request_is_a_507(api: TestClient, disk: Disk):
    disk.full = True
    answer = api.post("/api/v1/jobs", json=MANIFEST)
    assert (answer.status_code, answer.json()["error"]) == (507, f"the disk is full; {WHERE}")
    assert api.get("/api/v1/jobs").json() == []


def test_health_says_what_is_waited_for_and_names_no_place(api: TestClient, path: Path):
    assert api.get("/healthz").json() == {"status": "ok"}
    with Home(path.parent).lock() as held:
        held.tell("the disk is full", f"{path}: the disk is full, 0 KiB are left on {path.parent}")
        answer = api.get("/healthz")
        assert (answer.status_code, answer.json()["error"]) == (503, "the scheduler waits: the disk is full")
        assert str(path.parent) not in answer.text
        scraped = api.get("/metrics").text
        assert 'starburst_scheduler_held_up{reason="the disk is full"} 1.0' in scraped
        page = api.get("/").text
        assert "The scheduler waits." in page
        assert f"0 KiB are left on {path.parent}" in page
        held.tell("", "")
        held.stand_by(f"other:{path.parent}")
        answer = api.get("/healthz")
        assert (answer.status_code, answer.json()) == (200, {"status": "stands by"}), "nobody restarts it"
        held.stand_by("")
        assert api.get("/healthz").json() == {"status": "ok"}


def test_a_store_that_cannot_say_who_may_ask_lets_nobody_in_and_is_no_500(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    def out_of_reach(_store: Store) -> bool:
        raise DiskFullError(f"{path}: the disk is full")

    monkeypatch.setattr("starburst.store.tokens.any_exist", out_of_reach)
    with (
        socket.create_server(("127.0.0.1", 0)) as sock,
        Store.open(path) as store,
        serving(AppContext(Home(path.parent), store), HttpConfig(), sock) as url,
    ):
        answer = httpx.get(f"{url}/api/v1/jobs")
        assert (answer.status_code, answer.json()["error"]) == (507, f"the disk is full; {WHERE}")
        assert httpx.get(f"{url}/healthz").status_code == 200
