"""Files that another process may read or write at any moment: whole or absent, and never taken on trust.

Facts are JSON in a file of their own. A writer fills a staging file, syncs it and renames it, so that a kill
leaves the old fact or the new one. A reader takes only plain files up to a size: a job that can write beside
the fact may have put a link, a pipe or a device in its place.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: Bytes: a larger file states no fact, unless its reader allows more.
MAX_FACT_BYTES = 1 << 16
#: Bytes reserved for a file that must be written even when the disk is full.
RESERVED_BYTES = 4096
#: Seconds between attempts to write such a file.
RETRY_S = 1.0

#: The machine is short of something for the moment; the operation can succeed later.
PASSING_ERRORS = {errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE}
#: The same for writes, where the disk may be full or its file system unavailable.
FULL_DISK = PASSING_ERRORS | {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE}


def is_shortage(error: Exception) -> bool:
    """Whether an error says that the machine is short of something, and nothing about the file."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in FULL_DISK)


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Replace a file by `data` as JSON, atomically and synced; a new file is readable by its owner only.

    After the return a crash of the machine does not bring back what was there before.

    Of several writers at a time, such as tasks that start together, the last one counts: each has a staging
    file of its own.

    Raises:
        OSError: the disk is full or the directory is gone; the file is as it was.
    """
    staging = f"{os.fspath(path)}.{threading.get_native_id()}.tmp"
    try:
        # json.dump() is written in Python, and ten times as slow
        _fill(staging, json.dumps(data).encode(), os.O_CREAT | os.O_TRUNC)
        os.replace(staging, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(staging)
        raise
    sync_directory(os.path.dirname(staging))


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Have names that were made in a directory outlast a crash of the machine, if its file system can."""
    with suppress(OSError):  # the names are there, whatever comes
        directory = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def reserve(path: str) -> None:
    """Take the blocks for a file that `write_reserved` is to write on a full disk, unless that is done.

    Raises:
        OSError: the disk is full, or the directory is gone.
    """
    room = _room(path)
    if not os.path.lexists(room) or os.lstat(room).st_size < RESERVED_BYTES:
        _fill(room, b" " * RESERVED_BYTES, os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)


def write_reserved(path: str, data: Any) -> None:
    """Replace a small file by `data` as `write_json` does; on a full disk into blocks reserved for it.

    The file and its reserve change places then: no block is given back that a neighbour could take.

    Raises:
        OSError: the disk is full and nothing is reserved, or its file system is unavailable.
    """
    try:
        return write_json(path, data)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not os.path.lexists(_room(path)):
            raise
    room, old = _room(path), f"{path}.old"
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # one of several writers at a time
        text = json.dumps(data).encode().ljust(RESERVED_BYTES)
        _fill(room, text, os.O_NOFOLLOW | os.O_NONBLOCK)  # a job may have put a pipe there
        with suppress(OSError):
            remove(old)  # of a writer that was killed
            os.link(path, old)
        os.replace(room, path)
        with suppress(OSError):
            os.replace(old, room)
    finally:
        os.close(directory)


def open_private(path: str, flags: int) -> int:
    """An opener for `open`: a file it creates is readable by its owner only."""
    return os.open(path, flags, 0o600)


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a file that only this program writes; None if there is no such file.

    Raises:
        OSError, ValueError: the file cannot be read, or holds no JSON.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def read_plain(path: str | os.PathLike[str], limit: int) -> bytes | None:
    """The content of a plain file of at most `limit` bytes; None for a link, pipe, directory or larger file.

    Raises:
        OSError: the file exists and cannot be read at the moment.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        if stat.S_ISREG(os.lstat(path).st_mode):
            raise
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        text = os.read(file, limit + 1)
        return text if len(text) <= limit else None
    finally:
        os.close(file)


def read_fact(path: str | os.PathLike[str], limit: int = MAX_FACT_BYTES) -> dict[str, Any] | None:
    """The JSON object in a file that jobs may have overwritten; None if there is none.

    Raises:
        OSError: the file exists and cannot be read at the moment.
    """
    text = read_plain(path, limit)
    try:
        fact = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fact if isinstance(fact, dict) else None


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def try_lock(file: int) -> bool:
    """Take the exclusive flock of an open file without waiting; False while another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def retry_while_full(act: Callable[[], None]) -> None:
    """Call `act`, which reads or writes, until the machine is short of nothing for it.

    Raises:
        OSError: any error that free space or another resource would not cure.
    """
    while True:
        try:
            return act()
        except OSError as error:
            if not is_shortage(error):
                raise
        time.sleep(RETRY_S)


class ReservedFile:
    """A small file whose blocks are allocated now and whose content is written once, later.

    The staging file is filled with spaces, so that the later write needs no new block on most file systems.
    """

    def __init__(self, path: str) -> None:
        self._path, self._staging = path, _room(path)
        retry_while_full(lambda: self._put(b" " * RESERVED_BYTES, os.O_CREAT | os.O_TRUNC))

    def write(self, data: Any) -> None:
        """Write `data` as JSON into the reserved blocks and rename the file; retried while full."""
        text = json.dumps(data).encode().ljust(RESERVED_BYTES)
        retry_while_full(lambda: self._put(text, 0))
        retry_while_full(lambda: os.replace(self._staging, self._path))

    def _put(self, text: bytes, flags: int) -> None:
        _fill(self._staging, text, os.O_NOFOLLOW | flags)


def _room(path: str) -> str:
    """Where blocks are reserved for a file."""
    return f"{path}.room"


def _fill(path: str, text: bytes, flags: int) -> None:
    """Write a text to a file, which is synced; one that is new is readable by its owner only."""
    file = os.open(path, os.O_WRONLY | flags, 0o600)
    try:
        while text:
            text = text[os.write(file, text) :]
        os.fsync(file)
    finally:
        os.close(file)
