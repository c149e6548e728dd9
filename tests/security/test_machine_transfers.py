"""What goes to a rented machine over ssh, and what comes: keys, Secrets, directories (6 s).

The stand-in for ssh is that of tests/clouds/sky/test_ssh.py: it stays on this machine and keeps to ssh's own
rules for host keys.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from starburst.clouds.sky.access import archive
from starburst.clouds.sky.access.agent_archive import agent_path
from starburst.clouds.sky.access.answers import ANSWER_BYTES, AnswerError
from starburst.clouds.sky.access.ports import LocalError, SkyError, SkyUnreachableError, UnsafeError
from starburst.clouds.sky.access.ssh import SshTransport
from tests.clouds.sky.test_ssh import ACCESS, contact, machine, run

__all__ = ["contact", "machine"]  # fixtures

pytestmark = pytest.mark.processes

SECRET = {"specs": {"a/1/0": {"secrets": {"PASSWORD": "s3cret"}}}}
THERE = "~/starburst/checkpoints/a"


def said(machine: Path) -> list[str]:
    """The command lines of ssh, one each."""
    return (machine.parent / "seen").read_text().splitlines()


# --- keys -------------------------------------------------------------------------------------------------


def test_first_contact_asks_for_the_key_and_nothing_is_said_before_it_is_pinned(
    contact: SshTransport, machine: Path
) -> None:
    run(contact.call("c", ACCESS, "exchange", SECRET))
    first, *others = said(machine)
    assert first.endswith("bash -c true")
    assert "StrictHostKeyChecking=accept-new" in first
    assert "ControlPath=none" in first
    assert others
    assert all("StrictHostKeyChecking=yes" in line and "HostKeyAlias=c" in line for line in others)


def test_a_machine_with_another_key_than_at_first_is_told_nothing(
    contact: SshTransport, machine: Path, tmp_path: Path
) -> None:
    run(contact.call("c", ACCESS, "exchange", {}))
    (tmp_path / "seen.key").write_text("another-key")
    for call in (
        contact.call("c", ACCESS, "exchange", SECRET),
        contact.send("c", ACCESS, tmp_path, "~/x"),
        contact.fetch("c", ACCESS, "~/x", tmp_path / "y"),
    ):
        with pytest.raises(SkyError, match="its ssh host key is not the one of the first contact") as told:
            run(call)
        assert not isinstance(told.value, SkyUnreachableError), (
            "it answers, but it is not the machine we know"
        )
    assert not list(machine.rglob("secrets.json"))


def test_the_key_is_remembered_by_the_next_scheduler_and_forgotten_with_its_machine(
    contact: SshTransport, machine: Path, tmp_path: Path
) -> None:
    run(contact.call("c", ACCESS, "exchange", {}))
    (tmp_path / "seen.key").write_text("another-key")
    second = SshTransport(tmp_path / "ours")
    try:
        with pytest.raises(SkyError, match="not trusted"):
            run(second.call("c", ACCESS, "exchange", {}))
        assert run(second.call("other", ACCESS, "exchange", {}))["ranks"] == {}
        second.forget("c")
        assert run(second.call("c", ACCESS, "exchange", {}))["ranks"] == {}
    finally:
        second.close()
    pinned = list((tmp_path / "ours" / "hosts").iterdir())
    assert sorted(path.name for path in pinned) == ["c", "other"]
    assert not any(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in pinned)


def test_two_machines_share_no_connection_even_at_one_address(contact: SshTransport, machine: Path) -> None:
    for cluster in ("c", "d"):
        run(contact.call(cluster, ACCESS, "exchange", {}))
    paths = {part for line in said(machine) for part in line.split() if part.startswith("ControlPath=/")}
    assert len(paths) == 2


# --- answers ----------------------------------------------------------------------------------------------


def test_a_machine_that_answers_without_end_is_cut_off(contact: SshTransport, machine: Path) -> None:
    run(contact.call("c", ACCESS, "exchange", {}))
    program = machine / agent_path().removeprefix("~/")
    program.write_text("import os\nwhile True: os.write(1, b'x' * 65536)")
    with pytest.raises(AnswerError, match=f"more than {ANSWER_BYTES >> 10} KiB"):
        run(contact.call("c", ACCESS, "exchange", {}))


def test_what_its_agent_complains_of_does_nothing_to_a_terminal(contact: SshTransport, machine: Path) -> None:
    run(contact.call("c", ACCESS, "exchange", {}))
    program = machine / agent_path().removeprefix("~/")
    program.write_text("raise SystemExit('\\x1b]0;owned\\x07')")
    with pytest.raises(SkyError) as told:
        run(contact.call("c", ACCESS, "exchange", {}))
    assert str(told.value).isprintable()


# --- directories ------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of the scheduler's user, whose secrets nobody may have."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "credentials").write_text("AWS SECRET of the scheduler's user")
    return home


def test_a_link_in_place_of_a_jobs_checkpoints_hands_out_nothing_of_this_host(
    contact: SshTransport, machine: Path, tmp_path: Path, home: Path
) -> None:
    here = tmp_path / "checkpoints" / "a"
    here.parent.mkdir()
    here.symlink_to(home)
    with pytest.raises(UnsafeError, match="not a directory of its own"):
        run(contact.send("c", ACCESS, here, THERE))
    assert not list(machine.rglob("credentials"))


def test_a_link_within_them_goes_as_a_link(
    contact: SshTransport, machine: Path, tmp_path: Path, home: Path
) -> None:
    here = tmp_path / "checkpoints" / "a"
    here.mkdir(parents=True)
    (here / "step-5").write_text("5")
    (here / "latest").symlink_to("step-5")
    (here / "evil").symlink_to(home)
    run(contact.send("c", ACCESS, here, THERE))
    there = machine / "starburst" / "checkpoints" / "a"
    assert (there / "latest").read_text() == "5"
    assert os.readlink(there / "evil") == str(home)
    assert not [path for path in there.rglob("*") if path.name == "credentials" and not path.is_symlink()]


def test_a_link_in_their_place_on_a_machine_is_not_followed_and_ours_stay(
    contact: SshTransport, machine: Path, tmp_path: Path, home: Path
) -> None:
    here = tmp_path / "checkpoints" / "a"
    here.mkdir(parents=True)
    (here / "step").write_text("1")
    there = machine / "starburst" / "checkpoints" / "a"
    there.parent.mkdir(parents=True)
    there.symlink_to(home)
    with pytest.raises(SkyError, match="is a link there"):
        run(contact.fetch("c", ACCESS, THERE, here))
    assert [path.name for path in here.iterdir()] == ["step"]


def test_a_link_in_place_of_ours_is_replaced_and_not_written_through(
    contact: SshTransport, machine: Path, tmp_path: Path, home: Path
) -> None:
    there = machine / "starburst" / "checkpoints" / "a"
    there.mkdir(parents=True)
    (there / "credentials").write_text("planted")
    here = tmp_path / "checkpoints" / "a"
    here.parent.mkdir()
    here.symlink_to(home)
    run(contact.fetch("c", ACCESS, THERE, here))
    assert not here.is_symlink()
    assert (here / "credentials").read_text() == "planted"
    assert (home / "credentials").read_text().startswith("AWS SECRET")


def member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, to, mode
    return info


def archive_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for info, body in members:
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return made.getvalue()


def answering(machine: Path, monkeypatch: pytest.MonkeyPatch, packed: bytes) -> None:
    """A machine whose tar packs what an attacker likes."""
    (machine / "packed").write_bytes(packed)
    monkeypatch.setattr(archive, "pack_there", lambda _remote: "cat ~/packed")


@pytest.mark.parametrize(
    "members",
    [
        [(member("../planted"), b"x")],
        [(member("/planted"), b"x")],
        [(member("out", tarfile.SYMTYPE, ".."), b""), (member("out/planted"), b"x")],
        [(member("out", tarfile.SYMTYPE, "/"), b""), (member("out/planted"), b"x")],
        [(member("a"), b"x"), (member("hard", tarfile.LNKTYPE, "../kept/step"), b"")],
        [(member("pipe", tarfile.FIFOTYPE), b"")],
        [(member("sda", tarfile.BLKTYPE), b"")],
    ],
    ids=["dots", "root", "through a link", "through a link to /", "hard link", "pipe", "device"],
)
def test_nothing_of_a_hostile_archive_is_planted_outside(
    contact: SshTransport,
    machine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    members: list[tuple[tarfile.TarInfo, bytes]],
) -> None:
    answering(machine, monkeypatch, archive_of(*members))
    here = tmp_path / "checkpoints" / "a"
    (tmp_path / "checkpoints" / "kept").mkdir(parents=True)
    (tmp_path / "checkpoints" / "kept" / "step").write_text("1")
    try:
        run(contact.fetch("c", ACCESS, THERE, here))
    except SkyError:
        assert not here.exists()
    assert not (tmp_path / "planted").exists()
    assert not (tmp_path / "checkpoints" / "planted").exists()
    assert not Path("/planted").exists()
    assert (tmp_path / "checkpoints" / "kept" / "step").stat().st_nlink == 1
    kinds = [os.lstat(path).st_mode for path in here.rglob("*")] if here.exists() else []
    assert all(stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind) for kind in kinds)
    assert not list((tmp_path / "checkpoints").glob(".a-*")), "nothing half is left"


def test_what_comes_has_no_rights_of_others_and_can_be_removed(
    contact: SshTransport, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut = (member("shut", tarfile.DIRTYPE, mode=0), b"")
    answering(machine, monkeypatch, archive_of((member("root", mode=0o6755), b"x"), shut))
    here = tmp_path / "a"
    for _ in range(2):
        run(contact.fetch("c", ACCESS, THERE, here))
    assert stat.S_IMODE((here / "root").stat().st_mode) & 0o7000 == 0
    assert sorted(path.name for path in here.iterdir()) == ["root", "shut"]
    assert not list(tmp_path.glob(".a*"))


def test_what_comes_is_bounded_and_leaves_the_disk_some_room(
    contact: SshTransport, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(machine, monkeypatch, archive_of((member("large"), bytes(1 << 20))))
    here = tmp_path / "a"
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 19)
    with pytest.raises(SkyError):
        run(contact.fetch("c", ACCESS, THERE, here))
    monkeypatch.setattr(archive, "KEPT_FREE", 1 << 62)
    with pytest.raises(LocalError, match="of the disk is free"):
        run(contact.fetch("c", ACCESS, THERE, here))
    assert not here.exists()
    assert not list(tmp_path.glob(".a-*"))


def test_a_file_of_holes_travels_as_holes_both_ways(
    contact: SshTransport, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, back = tmp_path / "checkpoints" / "a", tmp_path / "back"
    here.mkdir(parents=True)
    with (here / "huge").open("wb") as file:
        file.truncate(1 << 30)
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 16)
    run(contact.send("c", ACCESS, here, THERE))
    run(contact.fetch("c", ACCESS, THERE, back))
    for huge in (machine / "starburst" / "checkpoints" / "a" / "huge", back / "huge"):
        assert (huge.stat().st_size, huge.stat().st_blocks) == (1 << 30, 0)


def test_files_that_only_root_can_read_come_home_too(
    contact: SshTransport, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image whose user is root leaves such; here a tar that fails for whoever did not come by sudo."""
    tools = tmp_path / "bin"
    (tools / "sudo").write_text('#!/bin/sh\n[ "$1" = -n ] && shift\nIS_ROOT=1 exec "$@"\n')
    (tools / "tar").write_text(
        '#!/bin/sh\ncase "$*" in *-cf*) [ "$IS_ROOT" ] || { echo "Permission denied" >&2; exit 2; };; esac\n'
        'PATH="${PATH#*:}" exec tar "$@"\n'
    )
    for tool in ("sudo", "tar"):
        (tools / tool).chmod(0o755)
    there = machine / "starburst" / "checkpoints" / "a"
    there.mkdir(parents=True)
    (there / "step").write_text("2")
    (there / "step").chmod(0)
    run(contact.fetch("c", ACCESS, THERE, tmp_path / "a"))
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["step"]
