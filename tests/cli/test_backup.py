"""`starburst backup` and `restore`: one consistent file, and the way back."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from starburst.app.config.home import Home
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.machines.ended import DAY_S, load_recent_machines
from starburst.clouds.sky.machines.entry import MachineEntry, save_machine
from starburst.store.store import Store
from starburst.store.upkeep.backup import SKIPPED
from tests.cli.answers import one_line
from tests.cli.conftest import Cli
from tests.cli.past import Past


def test_what_was_backed_up_comes_back_and_what_was_there_is_kept(
    cli: Cli, past: Past, home: Path, tmp_path: Path
) -> None:
    past.morning()
    copy = tmp_path / "copy.db"
    assert cli("backup", copy).out == f"{copy}: 5 jobs, of {home}\n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert not list(tmp_path.glob("copy.db-*"))
    past.submit("late-66666")
    past.store.close()
    told = cli("restore", copy, "--yes")
    assert told.code == 0
    assert f"{home / 'starburst.db'}: restored, 5 jobs; what was there is starburst.db.before-" in told.out
    assert cli("status", "late").code == 2
    assert cli("status", "wait").code == 0
    (before,) = [
        file for file in home.glob("starburst.db.before-*") if not file.name.endswith(("-wal", "-shm"))
    ]
    again = cli("restore", before, "-y")
    assert "restored, 6 jobs" in again.out


class KilledError(BaseException):
    """The process ends here."""


def test_a_restore_that_is_killed_leaves_a_store_in_the_place(
    cli: Cli, past: Past, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.morning()
    copy, replace = tmp_path / "copy.db", os.replace
    assert cli("backup", copy).code == 0
    past.submit("late-66666")
    past.store.close()

    def replace_until(source: str | Path, target: str | Path) -> None:
        if Path(target) == home / "starburst.db":
            raise KilledError
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", replace_until)
        with pytest.raises(KilledError):
            cli("restore", copy, "--yes")
    assert cli("status", "late").code == 0
    assert "restored, 5 jobs" in cli("restore", copy, "-y").out


def test_a_restore_names_the_tokens_that_were_revoked_since(cli: Cli, past: Past, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    for name in ("kept", "leaked"):
        assert cli("token", "create", name).code == 0
    assert cli("backup", copy).code == 0
    assert cli("restore", copy, "-y").out.endswith("see starburst reap\n")
    assert cli("token", "revoke", "leaked").code == 0
    told = cli("restore", copy, "-y").out
    assert told.endswith("tokens that are valid again: leaked; revoke each: starburst token revoke NAME\n")


def test_a_restore_asks_and_needs_the_scheduler_to_be_down(
    cli: Cli, past: Past, tmp_path: Path, home: Path
) -> None:
    copy = tmp_path / "copy.db"
    assert cli("backup", copy).code == 0
    assert one_line(cli("restore", copy)).endswith("to do it without a question, add --yes")
    with Home(home).lock():
        assert "another starburst runs here" in one_line(cli("restore", copy, "-y"))


def test_files_that_will_not_do(cli: Cli, past: Past, tmp_path: Path, home: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database" * 100)
    assert one_line(cli("backup", text)).endswith("cannot be made (File exists); name a new file")
    assert "is no store of Starburst" in one_line(cli("restore", text, "-y"))
    assert "there is no such file" in one_line(cli("restore", tmp_path / "none.db", "-y"))
    assert "/dev/null: is a device, a socket or a pipe; name a file" in one_line(cli("restore", "/dev/null"))
    assert "is a directory; name a file" in one_line(cli("restore", tmp_path, "-y"))
    assert cli("status").code == 0


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """Files of this process cannot grow further, as on a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_without_room_there_is_no_half_backup_and_no_half_restore(
    cli: Cli, past: Past, tmp_path: Path, home: Path
) -> None:
    past.morning()
    past.store.close()
    whole, cut = tmp_path / "whole.db", tmp_path / "cut.db"
    assert cli("backup", whole).code == 0
    with no_room_beyond(64 * 1024):
        assert one_line(cli("backup", cut)).endswith("free room, or name another place")
        assert "the copy failed" in one_line(cli("restore", whole, "-y"))
    assert [file.name for file in tmp_path.iterdir() if "cut" in file.name] == []
    assert not list(home.glob("*.restoring*"))
    assert not list(home.glob("*.before-*"))
    assert cli("status", "wait").code == 0


def test_a_restore_leaves_the_backup_as_it_is_and_numbers_no_machine_as_one_rented_since(
    cli: Cli, past: Past, tmp_path: Path, home: Path
) -> None:
    past.morning()
    launches = past.store.fact("facts")["launches"]
    past.store.close()
    copy = tmp_path / "copy.db"
    assert cli("backup", copy).code == 0
    before = copy.read_bytes()
    assert cli("restore", copy, "-y").code == 0
    assert copy.read_bytes() == before
    with Store.open(home / "starburst.db") as store:
        assert store.fact("facts")["launches"] == launches + SKIPPED


def numbers_given(home: Path) -> int:
    with Store.open(home / "starburst.db") as store:
        return int(store.fact("facts")["launches"])


def test_no_number_of_a_machine_is_given_out_again_by_a_second_restore(
    cli: Cli, past: Past, tmp_path: Path, home: Path
) -> None:
    past.morning()
    past.store.close()
    copy = tmp_path / "copy.db"
    assert cli("backup", copy).code == 0
    assert cli("restore", copy, "-y").code == 0
    with Store.open(home / "starburst.db") as store:  # it rents two machines meanwhile
        store.set_fact("facts", {**store.fact("facts"), "launches": (rented := numbers_given(home) + 2)})
    assert cli("restore", copy, "-y").code == 0
    assert numbers_given(home) == rented + SKIPPED


@pytest.mark.parametrize("notes", ["notes", "notes-3"])
def test_where_the_store_is_damaged_what_the_home_has_noted_tells_which_numbers_are_given_out(
    cli: Cli, past: Past, tmp_path: Path, home: Path, notes: str
) -> None:
    past.store.close()
    copy = tmp_path / "copy.db"
    assert cli("backup", copy).code == 0
    (home / "starburst.db").write_bytes(b"damaged" * 1000)
    (home / "cloud" / "instances" / "c" / "i-005000").mkdir(parents=True)
    assert cli("restore", copy, "-y").code == 0
    assert numbers_given(home) == 5000 + SKIPPED
    (home / "starburst.db").unlink()
    journal = FileJournal(home / "cloud" / "sky" / notes)
    save_machine(journal, MachineEntry("i-007000", "m", False, 0.0, ended_at=0.0))
    assert load_recent_machines(journal, 3 * DAY_S, []) == []
    assert cli("restore", copy, "-y").code == 0
    assert numbers_given(home) == 7000 + SKIPPED
    save_machine(journal, MachineEntry("i-007001", "m", False, 0.0))
    (home / "starburst.db").unlink()
    assert cli("restore", copy, "-y").code == 0
    assert numbers_given(home) == 7001 + SKIPPED
