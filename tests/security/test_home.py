"""The home is its owner's alone: nobody else looks into it, and no second scheduler gets hold of it.

The attacker is another user of the machine, or whoever removes a file that is in the way.
"""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from starburst.app.config.home import Home
from starburst.app.daemon import home_lock as module
from starburst.app.daemon.home_watch import keep_watch
from starburst.app.daemon.shortages import Patience
from starburst.app.doctor.doctor import CheckStatus, home_checks
from starburst.app.errors import UserError
from starburst.store.store import Store
from tests.security.running import starburst, until, up

#: Of nobody who is here.
STRANGER = 5001

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """One that was made before Starburst came, as `mkdir` does."""
    root = tmp_path / "home"
    root.mkdir()
    root.chmod(0o755)
    return Home(root)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_that_was_open_is_closed_by_its_scheduler(home: Home):
    with home.lock():
        assert mode(home.root) == 0o700


def test_doctor_says_that_a_home_is_open_and_what_to_run(home: Home):
    found = next(check for check in home_checks(home) if check.status is CheckStatus.WARN)
    assert found.line == f"home: {home.root}: others may look into it (mode 0755); run: chmod 700 {home.root}"
    home.root.chmod(0o700)
    assert {check.status for check in home_checks(home)} == {CheckStatus.OK}


@only_root
def test_a_home_of_another_user_is_refused(home: Home):
    os.chown(home.root, STRANGER, STRANGER)
    with pytest.raises(UserError, match=rf"home: belongs to the user {STRANGER}; set STARBURST_HOME"):
        home.lock()
    assert any(check.status is CheckStatus.FAIL for check in home_checks(home))
    assert list(home.root.iterdir()) == [], "nothing was put there"


@pytest.mark.processes
def test_no_file_of_a_running_starburst_is_open_to_others(home: Home, tmp_path: Path):
    old = os.umask(0o000)  # the shell's, as careless as can be
    try:
        with up(home.root, tmp_path) as running:
            pid = running.process.pid
            assert running.submit("job", "sleep 60").returncode == 0
            until(lambda: running.phases() == {"job": "running"}, "the job runs")
            # The directory keeps others out of all of it; what the scheduler itself writes, and a job's
            # environment, are closed besides.
            assert mode(home.root) == 0o700
            inside = [path for path in home.root.rglob("*") if path.name in CLOSED or path.suffix == ".db"]
            assert {path.name for path in inside} >= {"starburst.db", "scheduler.lock", "spec.json"}
            assert {path: mode(path) & 0o077 for path in inside if mode(path) & 0o077} == {}
            limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
            (files,) = (line.split() for line in limits if line.startswith("Max open files"))
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            assert files[3:5] == [str(most)] * 2
            assert running.said("home-closed")
            if os.geteuid() == 0:
                assert not _can_read(home.root / "scheduler.lock")
            starburst(home.root, "cancel", "job")
            until(lambda: running.phases() == {"job": "cancelled"}, "the job ends")
    finally:
        os.umask(old)


CLOSED = ("scheduler.lock", "spec.json", "starburst.db-wal", "starburst.db-shm")


def _can_read(path: Path) -> bool:
    script = f"import os; os.setuid({STRANGER}); open({str(path)!r})"
    done = subprocess.run([sys.executable, "-S", "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0 or "PermissionError" in done.stderr, done.stderr
    return done.returncode == 0


# --- one scheduler ----------------------------------------------------------------------------------------


def test_removing_the_lock_file_lets_no_second_scheduler_in(home: Home):
    with home.lock() as held:
        (home.root / "scheduler.lock").unlink()
        with pytest.raises(UserError, match="another starburst runs here"):
            home.lock()
        assert home.scheduler() is not None
        held.look()
        assert home.scheduler_pid() == os.getpid(), "it is said anew who runs here"
    assert home.scheduler_pid() is None


def test_another_file_in_its_place_lets_no_second_one_in_either(home: Home):
    with home.lock() as held:
        (home.root / "other").write_text("1\n")
        (home.root / "other").replace(home.root / "scheduler.lock")
        with pytest.raises(UserError, match="another starburst runs here"):
            home.lock()
        held.look()
        assert home.scheduler_pid() == os.getpid()


def test_where_no_directory_can_be_locked_the_file_is_watched(home: Home, monkeypatch: pytest.MonkeyPatch):
    real = module.fcntl.flock

    def flock(fd: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError("no locks here")  # as NFS does
        real(fd, how)

    monkeypatch.setattr(module.fcntl, "flock", flock)
    with home.lock() as held:
        with pytest.raises(UserError, match="another starburst runs here"):
            home.lock()
        held.look()
        (home.root / "scheduler.lock").unlink()
        with pytest.raises(UserError, match=r"scheduler\.lock: was removed while starburst ran"):
            held.look()


def test_a_home_that_is_moved_away_ends_its_scheduler_with_a_line(
    home: Home, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("starburst.app.daemon.home_watch.LOOK_S", 0.0)
    Store.open(home.database).close()
    with home.lock() as held:
        there = home.database.stat()
        moved = home.root.rename(home.root.with_name("moved"))
        home.make()
        with pytest.raises(UserError, match="home: was moved or removed while starburst ran; put it back"):
            asyncio.run(keep_watch(held, moved / "starburst.db", there, Patience()))


def test_a_link_planted_as_the_lock_file_is_not_followed(home: Home, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (home.root / "scheduler.lock").symlink_to(victim)
    with pytest.raises(UserError, match="cannot be locked"):
        home.lock()
    assert home.scheduler() is not None, "nobody can tell that none runs"
    assert victim.read_text() == "precious"


def test_what_the_lock_file_says_is_taken_for_anything(home: Home):
    with home.lock():
        for text in (b"", b"\xff\xfe", b"-1\n", b"x" * 10_000, b"1\n2\n3\n4\n"):
            (home.root / "scheduler.lock").write_bytes(text)
            said = home.scheduler()
            assert said is not None
            assert said.pid in (0, 1)


def test_a_word_of_any_length_fits(home: Home):
    with home.lock() as held:
        held.tell("kind", "long\n" * 10_000)
        said = home.scheduler()
        assert said is not None
        assert (said.pid, said.kind) == (os.getpid(), "kind")
        assert (home.root / "scheduler.lock").stat().st_size == 4096
