"""Files of a task's volumes that came with its run: values of ConfigMaps and Secrets, facts of its pod.

They are below the task's directory, in one that is the machine user's alone, and go when the task ends. Only
its container sees them, read-only and with the modes of the manifest, as from a kubelet.
"""

from __future__ import annotations

import base64
import os
from typing import cast

from starburst.clouds.sky.agent.containers.options import TaskRefusedError
from starburst.clouds.sky.agent.protocol import FileToWrite
from starburst.clouds.sky.agent.task_dirs import FILES, VOLUMES, facts
from starburst.runs.supervisor.files import remove

#: Modes without one in the manifest: a kubelet's; and of a Secret whose reader is root.
MODE, SECRET_MODE = 0o644, 0o400


def write_files(path: str, *, as_root: bool) -> None:
    """Write the files of a task into its volumes. `as_root`: root reads them, whom no mode keeps out.

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
            _write(place, file, SECRET_MODE if file["secret"] and as_root else MODE)
        except OSError as error:
            raise TaskRefusedError(f"the file {file['path']} cannot be written: {error.strerror}") from error
    remove(os.path.join(path, FILES))


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
