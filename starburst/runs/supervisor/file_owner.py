"""Whose files a process of root makes: those of a task's directory belong to the owner of the directory.

On a rented machine the processes of a task that is kept apart are root's, and its files are the machine
user's, who reads them without being root. The kernel has an id for that, which only file systems regard; it
holds for the calling thread until the next exec (setfsuid(2)).
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_libc = ctypes.CDLL(None)


def act_as_owner_of(directory: str) -> None:
    """From now on read and write files with no more rights than the owner of a directory has."""
    owner = os.stat(directory)
    if os.geteuid() == 0:
        _libc.setfsgid(owner.st_gid)
        _libc.setfsuid(owner.st_uid)


def act_as_oneself() -> None:
    """Read and write files with all rights of the process again."""
    _libc.setfsuid(os.geteuid())
    _libc.setfsgid(os.getegid())


def hand_over(path: str, uid: int | None, gid: int | None, mode: int = 0o700) -> None:
    """Make a directory of this mode, and give it to an account with all in it that has the same owner.

    What is removed meanwhile is passed over. Without an account it stays whose it is.
    """
    os.makedirs(path, mode, exist_ok=True)
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        before = os.fstat(top).st_uid
        os.fchmod(top, mode)
        if uid is None or gid is None or uid == before:
            return
        for _path, directories, files, folder in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            for name in (*directories, *files):
                with suppress(FileNotFoundError):
                    if os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid == before:
                        os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
        os.fchown(top, uid, gid)  # last: an interrupted walk is begun again
    finally:
        os.close(top)
