"""Opening a store."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from starburst.store import databases
from starburst.store import engine as engine_module
from starburst.store.databases import sqlite
from starburst.store.databases.beginning import begin
from starburst.store.engine import migrate, open_engine, revision
from starburst.store.errors import BusyError, StoreError
from starburst.store.schema import HEAD
from starburst.store.store import Store

pytestmark = pytest.mark.sqlite


def test_a_new_file_is_made_with_its_parents_for_its_owner_only(path: Path) -> None:
    with Store.open(path) as store:
        store.set_fact("clock", {"speed": 1})
        assert {file.name for file in path.parent.iterdir()} == {"store.db", "store.db-wal", "store.db-shm"}
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("as_url", [False, True])
def test_a_string_is_a_path_or_a_url(path: Path, as_url: bool) -> None:
    with Store.open(f"sqlite:///{path}" if as_url else str(path)) as store:
        store.set_fact("a", 1)
    assert path.is_file()


def test_a_commit_is_on_the_disk_and_readers_do_not_block_writers(path: Path) -> None:
    engine = open_engine(path)
    with engine.connect() as conn:
        pragmas = {
            name: conn.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    engine.dispose()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_writer_takes_the_lock_before_it_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 0)
    first, second = open_engine(path), open_engine(path)
    with first.connect() as one, begin(one, writes=True):
        with (
            pytest.raises(BusyError, match="is being written to by this process; wait"),
            second.connect() as other,
            begin(other, writes=True),
        ):
            pass
        with second.begin() as conn:
            assert conn.scalar(text("SELECT count(*) FROM jobs")) == 0
    first.dispose()
    second.dispose()


def test_a_fresh_file_that_another_makes_ready_is_asked_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            other.execute("COMMIT")

    monkeypatch.setattr(time, "sleep", sleep)
    open_engine(path).dispose()
    other.close()
    assert waits == [sqlite.WAL_RETRY_S] * 3


def test_a_fresh_file_that_another_never_gives_back_is_refused_in_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(
        StoreError, match="being written to by this process; wait for that to end, and ask again"
    ):
        open_engine(path)
    other.close()


OPEN = """
import sys
from starburst.store.store import Store
print(Store.open(sys.argv[1]).fact("controller"))
"""


@pytest.mark.processes
def test_processes_that_open_a_fresh_file_at_once_agree(path: Path) -> None:
    openers = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [opener.communicate(timeout=60)[0].strip() for opener in openers]
    assert [opener.returncode for opener in openers] == [0] * 4
    assert len(said[0]) == 8
    assert len(set(said)) == 1


def test_every_store_has_an_id_of_its_own_that_stays(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as a, Store.open(tmp_path / "b.db") as b:
        first = a.fact("controller")
        assert first != b.fact("controller")
    with Store.open(tmp_path / "a.db") as again:
        assert again.fact("controller") == first


def test_a_store_of_a_newer_starburst_is_left_alone(path: Path) -> None:
    Store.open(path).close()
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")
    conn.close()
    with pytest.raises(
        StoreError, match=rf"schema 9999, made by a newer Starburst; .* up to {HEAD}: upgrade"
    ):
        Store.open(path)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x" * 5000)
    with pytest.raises(
        StoreError, match=r"notes\.txt: is damaged \(file is not a database\); stop what uses it"
    ):
        Store.open(path)


def test_a_parent_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError, match=r"store\.db cannot be made: .*home is not a directory"):
        Store.open(tmp_path / "home" / "store.db")


@pytest.mark.parametrize("where", ["nosuchdb://host/db", "://"])
def test_a_url_that_leads_nowhere_is_named(where: str) -> None:
    with pytest.raises(StoreError, match=where):
        Store.open(where)


def test_a_migration_that_fails_leaves_nothing_behind(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE facts (mine TEXT)")  # the last table the migration makes
    conn.close()
    with pytest.raises(StoreError, match="table facts already exists"):
        Store.open(path)
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as conn_:
        assert list(conn_.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'"))) == ["facts"]
    engine.dispose()


def test_migrating_again_changes_nothing(path: Path) -> None:
    engine = open_engine(path)
    migrate(engine)
    with engine.connect() as conn:
        assert revision(conn) == HEAD
    engine.dispose()


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(databases, "postgres", raising=False)
    monkeypatch.setitem(sys.modules, "starburst.store.databases.postgres", None)
    with pytest.raises(
        StoreError, match=r"psycopg://ada:\*\*\*@db/jobs needs the extra: pip install"
    ) as error:
        Store.open("postgres://ada:secret@db/jobs")
    assert "secret" not in str(error.value)


def test_a_connection_that_is_in_use_when_its_store_is_closed_ends_with_its_use(path: Path) -> None:
    """As when a call in a thread outlives the task that awaited it."""
    store = Store.open(path)
    with store.read() as conn:
        driver = conn.connection.dbapi_connection
        assert driver is not None
        store.close()
        assert driver.cursor().execute("SELECT 1").fetchone()[0] == 1
    with pytest.raises(Exception, match="closed"):
        driver.cursor().execute("SELECT 1")
