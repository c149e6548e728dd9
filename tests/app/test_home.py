"""The home: where it is, who may see it, and who holds it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.cli.backend.notes import note_if_down
from starburst.store.store import Store


def test_the_home_is_named_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("STARBURST_HOME", str(tmp_path / "here"))
    assert Home.default().root == tmp_path / "here"


def test_or_else_it_is_in_the_state_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("STARBURST_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert Home.default().root == tmp_path / "starburst"


@pytest.mark.parametrize("state", ["", "relative/is/ignored"])
def test_which_is_below_the_users_home_by_default(monkeypatch, tmp_path, state):
    monkeypatch.delenv("STARBURST_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Home.default().root == tmp_path / ".local" / "state" / "starburst"


def test_nobody_else_may_look_into_a_new_home(tmp_path):
    home = Home(tmp_path / "deep" / "home")
    with home.lock():
        assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
        assert stat.S_IMODE((home.root / "scheduler.lock").stat().st_mode) == 0o600


def test_a_file_is_no_home(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file: is not a directory; set STARBURST_HOME to one"):
        Home(tmp_path / "file").make()


def test_a_home_that_cannot_be_made_is_said_so():
    with pytest.raises(UserError, match=r"cannot be made \(.*\); set STARBURST_HOME"):
        Home(Path("/proc/starburst")).make()


def test_a_home_of_somebody_else_is_said_so(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    with pytest.raises(UserError, match=r"cannot be read and written; set STARBURST_HOME"):
        Home(tmp_path).make()


def test_one_scheduler_holds_it_and_is_known_by_its_pid(tmp_path):
    home = Home(tmp_path)
    assert home.scheduler_pid() is None
    with home.lock():
        assert home.scheduler_pid() == os.getpid()
        with pytest.raises(UserError, match=rf"another starburst runs here \(pid {os.getpid()}\); stop it"):
            home.lock()
    assert home.scheduler_pid() is None


def test_a_killed_scheduler_holds_nothing(tmp_path):
    script = f"""
import os, signal
from pathlib import Path
from starburst.app.config.home import Home
file = Home(Path({str(tmp_path)!r})).lock()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    with Home(tmp_path).lock():
        assert Home(tmp_path).scheduler_pid() == os.getpid()


def test_one_that_stands_by_says_for_whom(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STARBURST_HOME", str(tmp_path))
    home = Home(tmp_path)
    with home.lock() as held, Store.open(home.store) as store:
        held.stand_by("other:/home/ada")
        held.tell("the disk is full", "a file: the disk is full")
        said = home.scheduler()
        assert (said.kind, said.leader) == ("the disk is full", "other:/home/ada")
        note_if_down(store)
        told = "note: this starburst stands by; other:/home/ada leads the cluster\n"
        assert capsys.readouterr().err == told
        held.stand_by("")
        note_if_down(store)
        assert capsys.readouterr().err == ""


def test_replicas_that_start_together_remember_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one writes the whole file while this one waits for its disk."""
    home, sync = Home(tmp_path, url="postgresql://host/jobs"), os.fsync

    def late(file: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        home.remember_store()
        sync(file)

    monkeypatch.setattr(os, "fsync", late)
    home.remember_store()
    assert home.url_file.read_text() == "postgresql://host/jobs\n"
    assert stat.S_IMODE(home.url_file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [home.url_file]
    monkeypatch.setattr(os, "fsync", None)  # what is there already needs no room on a full disk
    home.remember_store()
