"""Whom a container runs as, and what is its own: the files of its volumes, and the checkpoints of its job.

Its image runs it as whom it wants, and a root without capabilities has no more rights than the owner of a
file. Where the machine's user may become root and the container's user is a number, these files are given to
that user, with their modes. Elsewhere everybody may do with them what their owner may: they are in
directories that nobody else on the machine can enter.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starburst.clouds.sky.agent.containers.engine import ACT_S, Engine
from starburst.clouds.sky.agent.containers.image import user_of
from starburst.clouds.sky.agent.containers.volume_files import give_files
from starburst.clouds.sky.agent.protocol import ContainerSpec
from starburst.clouds.sky.agent.separation import RootRefusedError, ask_root
from starburst.clouds.sky.agent.task_dirs import VOLUMES, base
from starburst.runs.supervisor.file_owner import hand_over

#: Names of root in an image.
ROOT = ("", "0", "root")
#: What everybody may do with opened files: of volumes, which are mounted read-only; and of checkpoints.
READ, ALL = 0o5, 0o7
#: The mode of a directory of checkpoints: an image may change its user as it runs.
OPEN = 0o777


@dataclass(frozen=True)
class ContainerUser:
    """Whom a container runs as."""

    #: Names or numbers, as its job or its image says; "" is root, and its group.
    name: str
    group: str
    #: Modes of files do not count: it is root with the capability DAC_OVERRIDE.
    overrides: bool

    @property
    def is_root(self) -> bool:
        """Whether it is root in its container."""
        return self.name in ROOT

    @property
    def uid(self) -> int | None:
        """Its number; None if only the image knows it."""
        return 0 if self.is_root else int(self.name) if self.name.isdecimal() else None

    @property
    def gid(self) -> int:
        """The number of its group; -1 if only the image knows it."""
        return int(self.group) if self.group.isdecimal() else -1


def container_user(engine: Engine, box: ContainerSpec) -> ContainerUser:
    """The user of a container, by the job or else by the image.

    Raises:
        EngineError, EngineSilentError: the engine does not say what the image has.
    """
    options = box["options"]
    own = options[options.index("--user") + 1] if "--user" in options else None
    name, _, group = (user_of(engine, box["image"]) if own is None else own).partition(":")
    kept = {options[at + 1] for at, option in enumerate(options) if option == "--cap-add"}
    return ContainerUser(name, group, name in ROOT and "DAC_OVERRIDE" in kept)


def make_own(path: str, engine: Engine, user: ContainerUser, checkpoints: str) -> None:
    """Let the user of a task's container read the files of its volumes, and read and write its checkpoints.

    A bucket has its own rules on who does what.
    """
    if user.is_root and not engine.is_root:
        return  # it is the machine's user
    has_files = any(files for _path, _directories, files in os.walk(os.path.join(path, VOLUMES)))
    saves = not user.overrides and _is_on_disk(checkpoints)
    if not has_files and not saves:
        return
    request = {"path": path, "uid": user.uid, "gid": user.gid, "checkpoints": checkpoints if saves else None}
    try:
        if user.uid is None or not engine.is_root:
            raise RootRefusedError("its number on this machine is not known")
        ask_root("give", request, seconds=ACT_S)
    except (RootRefusedError, OSError):
        if not user.overrides:
            _open_all(path, checkpoints if saves else None)


def give(request: dict[str, Any]) -> dict[str, bool]:
    """As root: give these files to an account."""
    give_files(request["path"], request["uid"], request["gid"])
    if request["checkpoints"] is not None:
        hand_over(request["checkpoints"], request["uid"], request["gid"], OPEN)
    return {"given": True}


def _is_on_disk(checkpoints: str) -> bool:
    """Whether a directory is not in a bucket."""
    try:
        return os.stat(checkpoints).st_dev == os.stat(base()).st_dev
    except OSError:  # its mount has died
        return False


def _open_all(path: str, checkpoints: str | None) -> None:
    for volume in os.scandir(os.path.join(path, VOLUMES)):
        open_to_all(volume.path, READ)
    if checkpoints is not None:
        open_to_all(checkpoints, ALL)


def open_to_all(directory: str, mask: int) -> None:
    """Let everybody do with one's own files there what their owner may, as far as the mask says."""
    for _path, _directories, files, folder in os.fwalk(directory, follow_symlinks=False):
        _open(folder, mask)
        for name in files:
            with suppress(OSError):  # removed meanwhile
                file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    _open(file, mask)
                finally:
                    os.close(file)


def _open(handle: int, mask: int) -> None:
    found = os.fstat(handle)
    if found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode):
        may = found.st_mode >> 6 & mask
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(found.st_mode) | may << 3 | may)
