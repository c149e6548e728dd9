"""A disk without a free block: no end is lost for want of one, and nothing runs twice."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from starburst.runs.supervisor import files
from starburst.runs.supervisor.log_pump import TAIL, LogPump

SMALL = 'mount -t tmpfs -o size=512k tmpfs "$1" && exec "$0" -m tests.runs.full_disk "$1" "$2"'


@pytest.mark.processes
def test_runs_that_end_on_a_full_disk_have_ended_once(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("needs root and util-linux, to mount a small disk for itself")
    told = subprocess.run(
        [unshare, "--mount", "sh", "-c", SMALL, sys.executable, str(root), str(elsewhere)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "mount:" in told.stderr and not told.stdout:
        pytest.skip(f"this machine mounts nothing: {told.stderr.strip()}")
    assert told.stdout.splitlines()[-1:][0].startswith("well"), told.stderr[-3000:]


def test_an_end_is_written_as_often_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where writing in place takes a new block, as on file systems that copy on write."""
    room = files.ReservedFile(str(tmp_path / "exit.json"))
    assert (tmp_path / "exit.json.room").stat().st_size == files.RESERVED_BYTES
    assert not (tmp_path / "exit.json").exists()
    failures = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO]
    waits: list[float] = []
    monkeypatch.setattr(files.time, "sleep", waits.append)
    write = os.write

    def failing(file: int, text: bytes) -> int:
        if failures:
            raise OSError(failures.pop(), "")
        return write(file, text[:100])  # and never all at once

    monkeypatch.setattr(files.os, "write", failing)
    room.write({"a": 1})
    monkeypatch.undo()
    assert len(waits) == 4
    assert files.read_json(tmp_path / "exit.json") == {"a": 1}
    assert not (tmp_path / "exit.json.room").exists()


def test_what_is_no_shortage_is_not_tried_for_ever(tmp_path: Path) -> None:
    room = files.ReservedFile(str(tmp_path / "exit.json"))
    (tmp_path / "exit.json.room").unlink()
    with pytest.raises(FileNotFoundError):
        room.write({})


def test_a_log_has_a_gap_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    pump, write, full = LogPump(file, 1 << 20, str(tmp_path / "times")), os.write, False

    def writing(handle: int, text: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, "")
        return write(handle, text)

    monkeypatch.setattr(os, "write", writing)
    pump.take(b"before\n")
    full = True
    pump.take(b"0123456789")
    full = False
    pump.take(b"after\n")
    monkeypatch.undo()
    gap = "\n[starburst: 10 bytes were lost here, for the disk was full]\n"
    assert path.read_text() == f"before\n{gap}after\n"
    os.close(file)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 5000, TAIL + 100, TAIL + 101, 3 * TAIL])
def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path, size: int) -> None:
    text = bytes(65 + n % 26 for n in range(size))
    path = tmp_path / "log"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    pump = LogPump(file, 100, str(tmp_path / "times"))
    for start in range(0, size, 7001):
        pump.take(text[start : start + 7001])
    pump.finish()
    os.close(file)
    kept = path.read_bytes()
    assert len(kept) <= 100 + TAIL + 300
    assert kept.startswith(text[:100])
    if size <= 100:
        assert kept == text
        return
    assert b"[starburst: home.max_log is reached, 100 bytes" in kept
    assert kept.endswith(text[100:][-TAIL:])
    left_out = size - 100 - TAIL
    assert (f"[starburst: {left_out} bytes were left out]" in kept.decode()) == (left_out > 0)
