"""`status` reads the file of the store without SQLAlchemy, and prints the same bytes as with it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.cli import completion
from starburst.cli.backend import session
from starburst.domain.job import Job, Member, Submission, Workload
from starburst.domain.resources import Resources
from starburst.store.databases.sqlite_reader import SqliteReader, newest_revision, open_current
from starburst.store.errors import DamagedError, UnusableError
from starburst.store.leader import LeaderClaim, take
from starburst.store.listings import job_rows
from starburst.store.schema import HEAD
from tests.cli.past import NOON

pytestmark = pytest.mark.sqlite
#: Imports that take longer than reading and printing the table.
SLOW = {"sqlalchemy", "asyncio", "rich", "yaml", "structlog", "httpx", "starburst.domain.job"}


@pytest.fixture(autouse=True)
def _morning(past):
    past.morning()


@pytest.fixture
def by_sqlalchemy(monkeypatch):
    """From now on no file can be read by SQLite's driver alone."""

    @contextmanager
    def none(_path: Path) -> Iterator[None]:
        yield None

    def replaced() -> None:
        monkeypatch.setattr(session, "open_current", none)
        monkeypatch.setattr(completion, "open_current", none)

    return replaced


def reads(path: Path) -> bool:
    with open_current(path) as reader:
        return reader is not None


def test_status_loads_no_library_that_starts_slowly(home):
    script = (
        "import sys; sys.argv = ['starburst', 'status']\n"
        "from starburst.cli.main import run\n"
        "try: run()\n"
        f"finally: print(*{SLOW!r} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "train-44444" in done.stdout
    assert done.stderr.splitlines()[1:] == [""]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "-o wide",
        "-o json",
        "-o yaml",
        "-o name",
        "--phase submitted --phase queued",
        "--user bob -o wide",
        "--queue papers --sort bill",
        "--phase cancelled",
        "--limit 1",
    ],
)
def test_the_output_is_the_same_by_both_ways(cli, past, by_sqlalchemy, words):
    for index in range(3):
        past.submit(f"sweep-x7k2p-{index}", array=Member("sweep-x7k2p", index, 3), name=f"sweep-{index}")
    job = Job("new-66666", "new", (Resources.of(1),), user="bob", max_wait_s=60.0)
    past.store.submit([Submission(job, Workload(("true",)))], NOON)
    alone = cli("status", *words.split())
    by_sqlalchemy()
    assert cli("status", *words.split()) == alone
    assert alone.code == 0


def test_a_deadline_is_not_shown_by_either_way_where_the_cloud_has_no_offers(cli, past, by_sqlalchemy):
    assert "12:14" in cli("status").out
    past.store.set_fact("offers", [])
    alone = cli("status")
    assert "12:14" not in alone.out
    by_sqlalchemy()
    assert cli("status") == alone


def test_ids_are_asked_for_in_parts(home, past):
    with open_current(home / "starburst.db") as reader:
        assert reader is not None
        with reader.read() as ask:
            ids = [f"none-{k}" for k in range(job_rows.CHUNK)] + ["train-44444"]
            assert [row.id for row in job_rows.jobs(ask, ids=ids)] == ["train-44444"]
            assert job_rows.jobs(ask, ids=[]) == []


def test_completion_offers_the_same_jobs_by_both_ways(home, by_sqlalchemy):
    alone = completion.complete_jobs("")
    assert alone[0] == "wait-55555"
    by_sqlalchemy()
    assert completion.complete_jobs("") == alone


def test_a_file_of_another_schema_is_left_to_the_store_which_migrates_it(cli, home):
    assert newest_revision() == HEAD
    assert reads(home / "starburst.db")
    with sqlite3.connect(home / "starburst.db") as conn:
        conn.execute("UPDATE alembic_version SET version_num = '0999'")
    conn.close()
    assert not reads(home / "starburst.db")
    assert "made by a newer Starburst" in cli("status").err


def test_a_file_on_which_replicas_led_is_left_to_the_store_which_names_the_leader(cli, home, past):
    assert take(past.store, None, LeaderClaim("host:1", "http://host:1"))
    assert not reads(home / "starburst.db")
    assert "note: host:1 leads (epoch 1)" in cli("status").err


def test_a_missing_or_foreign_file_is_left_to_the_store(cli, home, monkeypatch):
    assert not reads(home / "none.db")
    assert not (home / "none.db").exists()
    (home / "text.db").write_text("no database" * 100)
    assert not reads(home / "text.db")
    monkeypatch.setenv("STARBURST_HOME", str(home / "new"))
    assert cli("status").err.splitlines()[-1] == "no jobs"


def test_damage_found_while_reading_is_told_as_by_the_store(home, past):
    path = home / "starburst.db"
    past.store.close()
    with open_current(path) as reader:
        assert reader is not None
        os.truncate(path, 8192)
        with pytest.raises(DamagedError, match="is damaged"), reader.read() as ask:
            job_rows.jobs(ask)


def test_the_reader_writes_nothing(home):
    with open_current(home / "starburst.db") as reader:
        assert isinstance(reader, SqliteReader)
        with pytest.raises(UnusableError, match="readonly"), reader.read() as ask:
            ask("DELETE FROM jobs", {})


def test_one_read_sees_one_state(home, past):
    """A job that is taken up between two statements would be listed twice, or not at all."""
    with open_current(home / "starburst.db") as reader:
        assert reader is not None
        with reader.read() as ask:
            before = job_rows.jobs(ask)
            past.submit("late-77777")
            assert job_rows.jobs(ask) == before
        with reader.read() as ask:
            assert len(job_rows.jobs(ask)) == len(before) + 1
            assert replace(before[0]) == job_rows.jobs(ask)[0]
