"""The lock by which one scheduler holds a home, and the status that it shows to other processes.

The home's directory and the file scheduler.lock are both locked. The file holds the status only: removing it
does not release the directory. On file systems that cannot lock directories (NFS) the file's lock is the only
one, and `HomeLock.look` checks that the file is still there.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from starburst.app.errors import UserError

NAME = "scheduler.lock"
#: Its size, bytes. All of it is written at the start, so that the status can be updated on a full disk.
SIZE = 4096
#: Changes with each start of the machine.
KERNEL = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Status of the scheduler that holds a home."""

    #: 0 if unknown.
    pid: int = 0
    #: The shortage that it waits for, in a few words and in one line; "" if none.
    kind: str = ""
    detail: str = ""
    #: The other Starburst for whose cluster this one stands by; "" if it does not.
    leader: str = ""


class HomeLock:
    """The locks of a home, held from `take` until this is closed or the process ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        #: Open and locked; -1 while the locks are not held.
        self._directory = self._file = -1
        #: Whether the directory is locked, too.
        self._whole = False
        self._lacks = ("", "")
        self._leader = ""

    def __enter__(self) -> HomeLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def held(self) -> bool:
        """Whether this process holds the locks."""
        return self._file >= 0

    @property
    def key(self) -> str:
        """Identity of the locked directory on the running kernel, the same for all processes that can hold
        this lock; "" if it is not held.

        Whoever holds the lock of this key knows that the previous holder is gone: one kernel decides about
        both. A file server may have given a lock away because it lost sight of a holder that lives.
        """
        if self._directory < 0 or not self._whole:
            return ""
        try:
            found = os.fstat(self._directory)
            return f"{KERNEL.read_text().strip()}:{found.st_dev}:{found.st_ino}"
        except OSError:
            return ""

    def take(self) -> bool:
        """Take the locks; False if another process holds one.

        Raises:
            OSError: the directory or the file cannot be opened or written.
        """
        if self.held:
            return True
        directory = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        file = -1
        try:
            whole = _try_lock(directory, fcntl.LOCK_EX)
            if whole is not False:
                file = _open(self._root / NAME)
                if _try_lock(file, fcntl.LOCK_EX):
                    self._directory, self._file, self._whole = directory, file, whole is True
                    self.write()
                    return True
        except BaseException:
            self._directory = self._file = -1
            _close(directory, file)
            raise
        _close(directory, file)
        return False

    def close(self) -> None:
        """Release the home."""
        for fd in (self._file, self._directory):
            with suppress(OSError):
                _close(fd)
        self._directory = self._file = -1

    def tell(self, kind: str, detail: str) -> None:
        """Set the shortage that is shown to other processes; errors of the disk are ignored."""
        self._lacks = (kind, detail)
        with suppress(OSError):
            self.write()

    def stand_by(self, leader: str) -> None:
        """Set the Starburst that leads instead, "" for none, as it is shown to other processes."""
        self._leader = leader
        with suppress(OSError):
            self.write()

    def write(self) -> None:
        """Write the process id, the shortage and the leader to the lock file.

        Raises:
            OSError: the disk is full.
        """
        if not self.held:
            return
        lines = (str(os.getpid()), *(" ".join(text.split()) for text in (*self._lacks, self._leader)))
        text = "".join(f"{line}\n" for line in lines).encode()
        os.pwrite(self._file, text[:SIZE].ljust(SIZE), 0)

    def look(self) -> None:
        """Check that the locked directory is still the home; a removed lock file is created again.

        Raises:
            UserError: the home was moved or removed, or another scheduler may hold it.
        """
        if not self.held:
            return
        if not _same(self._directory, self._root):
            raise UserError(f"{self._root}: was moved or removed while starburst ran; put it back")
        if _same(self._file, self._root / NAME):
            return
        if not self._whole:
            raise UserError(f"{self._root / NAME}: was removed while starburst ran; leave it there")
        with suppress(OSError):  # disk full, or too many open files: the next call tries again
            file = _open(self._root / NAME)
            os.dup2(file, self._file, inheritable=False)
            os.close(file)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.write()


def lock_holder(root: Path) -> LockHolder | None:
    """The status of the scheduler that holds a home; None if the home is free.

    Raises:
        OSError: the directory or the file cannot be read.
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
    pid, kind, detail, leader = [*map(str.strip, text.split("\n", 3)), "", "", ""][:4]
    return LockHolder(int(pid) if pid.isdecimal() else 0, kind, detail, leader)


def _try_lock(fd: int, mode: int) -> bool | None:
    """Whether the lock was free and is now taken; None if the file system cannot lock such a file."""
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _same(fd: int, path: Path) -> bool:
    """Whether the open file is the one at `path`; true if the path cannot be examined now."""
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
