"""A home that is held by its one scheduler, and what that tells others of itself there.

The lock is on the directory: whoever removes scheduler.lock, which only says who holds it, frees nothing.
File systems that lock no directories (NFS) leave the lock on that file, which is then watched.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from starburst.app.errors import UserError

NAME = "scheduler.lock"
#: Its size, bytes: all of it is written at the start, so that a full disk has room for a word.
SIZE = 4096


@dataclass(frozen=True, slots=True)
class LockHolder:
    """What the scheduler of a home says of itself."""

    #: 0 if it does not say.
    pid: int = 0
    #: What it waits for, in a few words and in a line; "" if nothing.
    kind: str = ""
    detail: str = ""


class HomeLock:
    """The locks, held until this is closed or the process ends."""

    def __init__(self, root: Path, directory: int, file: int, *, whole: bool) -> None:
        """`directory` and `file` are open and locked; not `whole`: only the file is."""
        self._root = root
        self._directory = directory
        self._file = file
        self._whole = whole
        self._lacks = ("", "")

    def __enter__(self) -> HomeLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the home up."""
        for fd in (self._file, self._directory):
            with suppress(OSError):
                os.close(fd)

    def tell(self, kind: str, detail: str) -> None:
        """Have others know what is waited for, as far as the disk lets us."""
        self._lacks = (kind, detail)
        with suppress(OSError):
            self.write()

    def write(self) -> None:
        """Say who holds the home.

        Raises:
            OSError: there is no room for it.
        """
        lines = (str(os.getpid()), *(" ".join(text.split()) for text in self._lacks))
        text = "".join(f"{line}\n" for line in lines).encode()
        os.pwrite(self._file, text[:SIZE].ljust(SIZE), 0)

    def look(self) -> None:
        """See to it that the home is still the one that is held.

        Raises:
            UserError: it was moved or removed, or another scheduler may hold it.
        """
        if not _same(self._directory, self._root):
            raise UserError(f"{self._root}: was moved or removed while starburst ran; put it back")
        if _same(self._file, self._root / NAME):
            return
        if not self._whole:
            raise UserError(f"{self._root / NAME}: was removed while starburst ran; leave it there")
        with suppress(OSError):  # no room for it, or no more open files: later
            file = _open(self._root / NAME)
            os.dup2(file, self._file, inheritable=False)
            os.close(file)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.write()


def lock_home(root: Path) -> HomeLock | None:
    """Take the locks of a home; None if another process holds one.

    Raises:
        OSError: they cannot be opened or written.
    """
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    file = -1
    try:
        whole = _try_lock(directory, fcntl.LOCK_EX)
        if whole is not False:
            file = _open(root / NAME)
            if _try_lock(file, fcntl.LOCK_EX):
                held = HomeLock(root, directory, file, whole=whole is True)
                held.write()
                return held
    except BaseException:
        _close(directory, file)
        raise
    _close(directory, file)
    return None


def lock_holder(root: Path) -> LockHolder | None:
    """What the scheduler that holds a home says; None if none holds it.

    Raises:
        OSError: nobody can tell.
    """
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    file = -1
    try:
        free = _try_lock(directory, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            file = os.open(root / NAME, os.O_RDONLY | os.O_NOFOLLOW)
        if free is not False and (file < 0 or _try_lock(file, fcntl.LOCK_SH)):
            return None
        text = os.pread(file, SIZE, 0).decode(errors="replace") if file >= 0 else ""
    finally:
        _close(directory, file)
    pid, kind, detail = [*map(str.strip, text.split("\n", 2)), "", ""][:3]
    return LockHolder(int(pid) if pid.isdecimal() else 0, kind, detail)


def _try_lock(fd: int, mode: int) -> bool | None:
    """Whether there was nobody else; None where such a file cannot be locked."""
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _same(fd: int, path: Path) -> bool:
    """Whether what is open is what lies there; one that cannot be asked for now may well be."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)
