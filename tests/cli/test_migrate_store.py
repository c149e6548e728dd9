"""`starburst migrate-store`: a home moves to PostgreSQL and loses nothing; backups come and go there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from starburst.app.config.home import Home
from starburst.store.engine import next_numbers
from starburst.store.errors import UnusableError
from starburst.store.store import Store
from starburst.store.upkeep.copying import TABLES
from tests.cli.answers import one_line
from tests.cli.conftest import Cli
from tests.cli.past import Past
from tests.postgres import Server, server
from tests.store.samples import submission

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as one:
        yield one


@pytest.fixture
def url(running: Server) -> str:
    return running.create()


def contents(store: Store) -> dict[str, object]:
    """All rows, and the numbers to come."""
    with store.read() as conn:
        rows = {
            table.name: [tuple(row) for row in conn.execute(select(table).order_by(*table.primary_key))]
            for table in TABLES
        }
        return {**rows, "numbers": next_numbers(conn)}


def test_a_home_moves_with_all_it_has_and_commands_follow(
    cli: Cli, past: Past, home: Path, url: str, tmp_path: Path
) -> None:
    past.morning()
    before = contents(past.store)
    status = cli("status").out
    past.store.close()
    told = cli("migrate-store", home / "starburst.db", url)
    assert told.code == 0, told.err
    assert "5 jobs" in told.out
    assert cli("status").out == status
    with Store.open(url) as moved:
        assert contents(moved) == before
        moved.submit([submission("next")], 1.0)
    assert not (home / "starburst.db").exists()
    assert stat.S_IMODE((home / "store.url").stat().st_mode) == 0o600
    copy = tmp_path / "copy.db"
    assert cli("backup", copy).out == f"{copy}: 6 jobs, of {home}\n"
    with Store.open(url) as used:
        used.submit([submission("late")], 1.0)
        assert "restored, 6 jobs; what was there is" in cli("restore", copy, "-y").out
        assert used.submission("late") is None


def test_a_move_that_was_cut_off_is_repeated(cli: Cli, past: Past, home: Path, url: str) -> None:
    past.morning()
    past.store.close()
    file = home / "starburst.db"
    with Store.open(file) as waiting:
        os.link(file, home / "kept.db")
        assert cli("migrate-store", file, url).code == 0
        with pytest.raises(UnusableError, match="was moved to another database: run the command again"):
            waiting.submit([submission("late")], 1.0)
    # as if it had been killed before it wrote the URL
    (home / "store.url").unlink()
    (home / "kept.db").replace(file)
    assert cli("migrate-store", file, url).code == 0
    with Store.open(url) as moved:
        assert moved.submission("late") is None


def test_a_move_is_refused_while_a_scheduler_runs_or_over_another_store(
    cli: Cli, past: Past, home: Path, url: str, tmp_path: Path
) -> None:
    past.store.close()
    file = home / "starburst.db"
    with Home(home).lock():
        assert "another starburst runs here" in one_line(cli("migrate-store", file, url))
    with Store.open(url) as other:
        other.submit([submission("theirs")], 1.0)
    assert "holds another store already" in one_line(cli("migrate-store", file, url))
    assert "is no URL such as postgresql://" in one_line(cli("migrate-store", file, "mysql://x/y"))
    assert "no such file" in one_line(cli("migrate-store", tmp_path / "none.db", url))
    assert file.exists()
    assert cli("status").code == 0
