"""Whose files a process of root makes: those of a task's directory belong to the owner of the directory.

On a rented machine the processes of a task that is kept apart are root's, and its files are the machine
user's, who reads them without being root. The kernel has an id for that, which only file systems regard; it
holds for the calling thread until the next exec (setfsuid(2)).
"""

from __future__ import annotations

import ctypes
import os

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
