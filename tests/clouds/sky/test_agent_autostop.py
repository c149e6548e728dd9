"""SkyPilot's autostop counts idleness from the end of the lease, whatever became of the machine's Ray."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from starburst.clouds.sky.agent.exchange import renew


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".sky").mkdir()
    return tmp_path


def of_skypilot(home: Path) -> sqlite3.Connection:
    return sqlite3.connect(home / ".sky" / "skylet_config.db")


def test_a_renewal_postpones_autostop_to_the_end_of_the_lease(home: Path) -> None:
    with closing(of_skypilot(home)) as database, database:
        database.execute("CREATE TABLE config (key TEXT PRIMARY KEY, value TEXT)")
        database.execute("INSERT INTO config VALUES ('autostop_last_active_time', '1.0'), ('other', 'x')")
    renew(900.0)
    with closing(of_skypilot(home)) as database:
        rows = dict(database.execute("SELECT key, value FROM config"))
    assert float(rows["autostop_last_active_time"]) == pytest.approx(lease(home), abs=1)
    assert rows["other"] == "x"


@pytest.mark.parametrize("there", [None, b"no database"])
def test_without_a_skylet_the_lease_is_renewed_all_the_same(home: Path, there: bytes | None) -> None:
    if there is not None:
        (home / ".sky" / "skylet_config.db").write_bytes(there)
    renew(900.0)
    assert lease(home) > 0
    assert (home / ".sky" / "skylet_config.db").exists() == (there is not None), "none is made"


def lease(home: Path) -> float:
    return float(json.loads((home / "starburst" / "lease.json").read_text())["until"])
