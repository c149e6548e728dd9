"""What of a directory goes along with a job, and what is said of it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from starburst.app.directories import packing
from starburst.app.directories.packing import SubmittersFiles
from starburst.app.errors import UserError
from translator.kinds.local_files import WantedPath

NAMES = (".gitignore", ".starburstignore")


def packed(directory: Path) -> tuple[list[str], list[str]]:
    """The names in the archive of a directory, and what was said."""
    said: list[str] = []
    archive = SubmittersFiles(say=said.append).packed([WantedPath(str(directory), "work", NAMES)])
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return [entry.name for entry in tar.getmembers()], said


def make(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_what_is_not_ignored_goes_along_and_its_size_is_said(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "lib/b.py", ".git/HEAD", "out/c.bin", "data/d.csv")
    (tmp_path / ".gitignore").write_text("out/\n")
    (tmp_path / ".starburstignore").write_text("*.csv\n")
    names, said = packed(tmp_path)
    assert names == [
        *("work/.gitignore", "work/.starburstignore", "work/a.py", "work/data", "work/lib"),
        *("work/lib/b.py",),
    ]
    assert said == [f"taking along {tmp_path}: 6 files, 1 KiB packed"]


def test_ignore_files_above_count_in_a_part_of_a_repository(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "part/a.py", "part/deep/a.log", "part/b.log")
    (tmp_path / ".gitignore").write_text("/part/*.log\n")
    assert packed(tmp_path / "part")[0] == ["work/a.py", "work/deep", "work/deep/a.log"]


def test_links_stay_links_and_those_that_lead_out_are_said(tmp_path: Path) -> None:
    make(tmp_path, "code/a", "data/big")
    (tmp_path / "code" / "in").symlink_to("a")
    (tmp_path / "code" / "out").symlink_to("../data")
    os.mkfifo(tmp_path / "code" / "pipe")
    names, said = packed(tmp_path / "code")
    assert names == ["work/a", "work/in", "work/out"]
    assert said[1].endswith("pipe is no file, directory or link; left out") or said[2].endswith("left out")
    assert any("out is a link that leads out of" in line for line in said)


def test_the_same_files_are_the_same_archive_and_have_no_owner(tmp_path: Path) -> None:
    make(tmp_path, "a")
    wanted = [WantedPath(str(tmp_path), "work", NAMES)]
    archive = SubmittersFiles().packed(wanted)
    assert archive == SubmittersFiles().packed(wanted)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert {(entry.uid, entry.uname) for entry in tar} == {(0, "")}


def test_a_directory_that_is_too_large_names_what_is_large(tmp_path: Path) -> None:
    make(tmp_path, "a.py")
    (tmp_path / "model.bin").write_bytes(os.urandom(600 * 1024))
    with pytest.raises(
        UserError, match=r"60\d KiB packed; at most 480 KiB can go along .*model.bin \(600 KiB\)"
    ):
        packed(tmp_path)
    (tmp_path / ".starburstignore").write_text("model.bin")
    assert "work/a.py" in packed(tmp_path)[0]


def test_a_huge_directory_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_ENTRIES", 3)
    with pytest.raises(UserError, match="more than 64 MiB or 3 files"):
        packed(make(tmp_path, *"abcdef"))


def test_a_home_never_goes_along_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make(tmp_path, ".ssh/id")
    with pytest.raises(UserError, match="is the whole of your home, of Starburst's or of"):
        packed(tmp_path)


def test_the_state_of_starburst_never_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARBURST_HOME", str(tmp_path / "state"))
    make(tmp_path, "a.py", "state/starburst.db", "state/cluster/job/work/b.py")
    assert packed(tmp_path)[0] == ["work/a.py"]
    assert packed(tmp_path / "state/cluster/job/work")[0] == ["work/b.py"], "a job may submit its directory"
    with pytest.raises(UserError, match="is the whole of your home, of Starburst's"):
        packed(tmp_path / "state")


def test_a_name_that_is_no_text_goes_along_as_it_is(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9")).write_text("coffee")
    archive = SubmittersFiles().packed([WantedPath(str(tmp_path), "work", NAMES)])
    listed = subprocess.run(["tar", "tzf", "-"], input=archive, capture_output=True, check=True)
    assert (listed.stdout, listed.stderr) == (b"work/caf\\351\n", b"")


def test_files_that_are_written_meanwhile_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.py", "gone", "short", "long", "dir/lost")
    read = packing._Content.archive

    def archive(content: packing._Content) -> bytes:
        (tmp_path / "gone").unlink()
        (tmp_path / "short").write_text("s")
        (tmp_path / "long").write_text("long" * 9)
        shutil.rmtree(tmp_path / "dir")
        return read(content)

    monkeypatch.setattr(packing._Content, "archive", archive)
    names, said = packed(tmp_path)
    assert names == ["work/a.py", "work/long", "work/short"]
    assert said[1:] == [
        f"{tmp_path / name} was removed meanwhile; left out" for name in ("dir", "gone", "dir/lost")
    ]


def test_a_directory_that_is_removed_while_it_is_walked_is_no_error(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "dir/lost")
    walk = packing._walk(tmp_path, NAMES, leave_out=tmp_path / "state")
    assert [next(walk)[1], next(walk)[1]] == ["a.py", "dir"]
    shutil.rmtree(tmp_path / "dir")
    assert list(walk) == []


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none: cannot be read .No such file or directory."):
        packed(tmp_path / "none")
