"""Files of a task's volumes that came with its run: values of ConfigMaps and Secrets, facts of its pod.

They are below the task's directory, in one that is the machine user's alone, and go when the task ends. Only
the task sees them, read-only and with the modes of the manifest, as from a kubelet. They are made its own by
`keep_apart` of `run_task.py`, or by `container_user.py`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import cast

from starburst.clouds.sky.agent.containers.options import TaskRefusedError, source_of
from starburst.clouds.sky.agent.protocol import FileToWrite, VolumeMount
from starburst.clouds.sky.agent.task_dirs import FILES, VOLUMES, facts
from starburst.runs.supervisor.files import remove

#: Modes without one in the manifest: a kubelet's; and of a Secret, which its owner reads.
MODE, SECRET_MODE = 0o644, 0o400

#: Directories of the kernel's, where no mount point can be made.
KERNELS = ("/proc", "/sys", "/dev")


def write_files(path: str) -> None:
    """Write the files of a task into its volumes.

    Raises:
        TaskRefusedError: one cannot be written where it is to be.
    """
    root = os.path.join(path, VOLUMES)
    os.makedirs(root, mode=0o700, exist_ok=True)
    os.chmod(root, 0o700)
    files = (facts(os.path.join(path, FILES)) or {}).get("files", [])
    for file in cast("list[FileToWrite]", files):
        place = os.path.join(root, file["volume"], file["path"])
        try:
            _write(place, file, SECRET_MODE if file["secret"] else MODE)
        except OSError as error:
            raise TaskRefusedError(f"the file {file['path']} cannot be written: {error.strerror}") from error
    remove(os.path.join(path, FILES))


def file_mounts(path: str, mounts: Sequence[VolumeMount]) -> list[list[str]]:
    """Write the files of a task without an image; pairs of a place and what to mount there, outer ones first.

    Raises:
        TaskRefusedError: a file cannot be written, or not be mounted where it is to be.
    """
    if not mounts:
        return []
    write_files(path)
    pairs = []
    for volume in mounts:
        place = os.path.normpath(f"/{volume['path'].lstrip('/')}")
        if place == "/" or f"{place}/".startswith(tuple(f"{root}/" for root in KERNELS)):
            raise TaskRefusedError(f"nothing can be mounted at {place}; mend mountPath")
        pairs.append([place, source_of(path, volume)])
    return sorted(pairs)


def give_files(path: str, uid: int, gid: int = -1) -> None:
    """As root: make these files an account's own; their directories stay the machine user's.

    A group of -1 is the one that they have.
    """
    for folder, _directories, files in os.walk(os.path.join(path, VOLUMES)):
        for name in files:
            os.chown(os.path.join(folder, name), uid, gid, follow_symlinks=False)


def _write(place: str, file: FileToWrite, default_mode: int) -> None:
    mask = os.umask(0o022)  # directories on the way are for the container's user to read
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
    finally:
        os.umask(mask)
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as out:
        out.write(base64.b64decode(file["content"]))
        os.fchmod(handle, default_mode if file["mode"] is None else file["mode"])
