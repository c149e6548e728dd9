"""Directories of shared volumes that stay what they were when they were looked at.

Whoever may write to a volume can put a link in the place of a directory that another container is to be
shown (`subPath`), after the look and before the engine mounts it as root: the container then had any
directory of the machine. So root goes there by descriptors, which follow no link, and mounts what it finds
in the task's own directory. That is what the engine is given. It is taken down with the container
(`removal.py`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Sequence
from typing import Any

from starburst.clouds.sky.agent.containers.engine import Engine, EngineSilentError
from starburst.clouds.sky.agent.containers.removal import PINNED
from starburst.clouds.sky.agent.separation import RootRefusedError, ask_root

MS_BIND, MNT_DETACH = 4096, 2
_libc = ctypes.CDLL(None, use_errno=True)


class NotPinnedError(Exception):
    """A directory cannot be pinned; the message says why."""


def pinned(path: str, engine: Engine, parts: Sequence[tuple[str, str]]) -> list[str]:
    """Where the engine finds parts of volumes for the task in `path`: pairs of a volume and what is in it.

    A whole volume is where it is. An engine without root can show nothing that its user may not see.

    Raises:
        NotPinnedError: one is not what it was, or root cannot be had.
        EngineSilentError: root does not answer in time.
    """
    inner = [[root, os.path.relpath(source, root)] for root, source in parts if source != root]
    if not inner or not engine.is_root:
        return [source for _, source in parts]
    try:
        answer = ask_root("pin", {"path": path, "parts": inner})
    except RootRefusedError as error:
        raise NotPinnedError(str(error)) from error
    except OSError as error:
        raise EngineSilentError(str(error)) from error
    if answer["why"]:
        raise NotPinnedError(answer["why"])
    places = iter(answer["places"])
    return [source if source == root else str(next(places)) for root, source in parts]


def pin(request: dict[str, Any]) -> dict[str, Any]:
    """As root: mount parts of volumes below a task's directory; their places, or why that is not possible."""
    places: list[str] = []
    above = os.path.join(request["path"], PINNED)
    for root, below in request["parts"]:
        places.append(os.path.join(above, str(len(places))))
        try:
            os.makedirs(above, exist_ok=True)
            _pin(root, below, places[-1])
        except OSError as error:
            return {"why": f"{below}: {error.strerror}", "places": []}
    return {"why": "", "places": places}


def _pin(root: str, below: str, place: str) -> None:
    handle = reached(root, below)
    try:
        _libc.umount2(os.fsencode(place), MNT_DETACH)  # of an earlier try
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            os.makedirs(place, exist_ok=True)
        else:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC))
        what = f"/proc/self/fd/{handle}".encode()
        if _libc.mount(what, os.fsencode(place), None, ctypes.c_ulong(MS_BIND), None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(handle)


def reached(root: str, below: str) -> int:
    """A descriptor of what is in a volume, without a link on the way.

    Raises:
        OSError: there is a link, or nothing.
    """
    handle = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in below.split(os.sep):
        above = handle
        try:
            handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        finally:
            os.close(above)
        if stat.S_ISLNK(os.fstat(handle).st_mode) or name == os.pardir:
            os.close(handle)
            raise OSError(errno.ELOOP, "it was replaced by a link")
    return handle
