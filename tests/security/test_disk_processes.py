"""`starburst up` on a full disk and a locked store, and its log on a full disk."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from starburst.app.config.home import Home
from starburst.log import set_up_log
from starburst.store.store import Store
from tests.security.running import fill, small_disk, starburst, until, up


def test_a_log_on_a_full_disk_does_not_end_what_it_tells_of(monkeypatch: pytest.MonkeyPatch):
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115 - closing it fails
    monkeypatch.setattr("sys.stderr", full)
    set_up_log(text=True)
    structlog.get_logger().info("up")
    with suppress(OSError):
        full.close()


@pytest.mark.processes
def test_up_outlasts_a_disk_that_is_full_for_a_while(tmp_path: Path):
    done = tmp_path / "done"
    with small_disk(tmp_path / "disk", "12m") as place, up(place / "home", tmp_path) as running:
        running.submit("long", f"echo run >> {done}; while [ ! -e {tmp_path}/go ]; do sleep .1; done")
        until(lambda: running.phases() == {"long": "running"}, "the job runs")
        filler = fill(place)
        until(lambda: running.get("/healthz").status_code == 503, "not well")
        refused = running.submit("late", "true")
        assert refused.returncode == 2
        assert f"the disk is full, 0 KiB are left on {place}; free some room there" in refused.stderr
        assert "move it away" not in refused.stderr
        assert running.get("/api/v1/jobs").status_code == 200
        doctor = starburst(running.home, "doctor")
        assert doctor.returncode == 1
        assert "✗ scheduler: waits: " in doctor.stdout
        assert running.process.poll() is None
        filler.unlink()
        until(lambda: running.get("/healthz").status_code == 200, "well again")
        (tmp_path / "go").touch()
        until(lambda: running.phases() == {"long": "succeeded"}, "the job ends")
        assert done.read_text() == "run\n"
        assert len(running.said("waits")) == 1, "said once"
        assert running.process.poll() is None


@pytest.mark.processes
def test_up_waits_for_a_lock_at_its_start_and_says_whose_it_is(tmp_path: Path):
    home = Home(tmp_path / "home")
    home.make()
    Store.open(home.database).close()
    thief = sqlite3.connect(home.database, isolation_level=None, check_same_thread=False)
    thief.execute("BEGIN IMMEDIATE")
    log = tmp_path / "up.log"

    def let_go() -> None:
        until(lambda: log.exists() and "is being written to by" in log.read_text(), "it is said")
        thief.close()

    letting_go = threading.Thread(target=let_go)
    letting_go.start()
    with up(home.root, tmp_path) as running:
        letting_go.join()
        (said,) = running.said("waits")
        assert f"is being written to by pid {os.getpid()} (" in said["error"]
        assert running.get("/healthz").status_code == 200
