"""Whether what a run wrote to its checkpoints is in the bucket that is mounted for them.

SkyPilot mounts that bucket in the mode MOUNT: a file is uploaded when it is closed, and whoever closes it
hears whether that went well. A writer that was killed heard nothing, and a mount may have died or lost its
right to write. So the newest files are synced, a trial file is written beside the job's directory, and once
the mount has forgotten what it knew of the bucket, all names and sizes must be the same and the last bytes of
the newest files must be there to read. A mount that hangs stops who asks it, so a process of its own looks.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

#: Seconds after which a mount has forgotten names and sizes: goofys and gcsfuse know them for 5 s.
FRESH_S = 6.0
#: Number of files, the newest first, that are synced and read.
NEWEST = 64
#: Files that are synced and read at a time.
AT_A_TIME = 16
#: Bytes of a reason at most.
SHOWN = 1024
#: What a file system says that knows no such call.
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class UnconfirmedError(Exception):
    """Why something is not known to be in the bucket."""


def confirm(request: dict[str, Any]) -> dict[str, Any]:
    """Look for at most `wait_s` seconds: what is not in the `bucket` of the directory `checkpoints`, or "".

    `busy`: it may be there soon.
    """
    heard, said = os.pipe()
    looker = os.fork()
    if looker == 0:
        _say(said, request)
    os.close(said)
    with open(heard, "rb") as answer:
        if not select.select([answer], [], [], float(request["wait_s"]))[0]:
            os.kill(looker, signal.SIGKILL)  # it dies when its mount answers
            return {"left": f"the bucket has not answered for {float(request['wait_s']):g} s", "busy": False}
        text = answer.read()
    os.waitpid(looker, 0)
    found: dict[str, Any] = json.loads(text) if text else {"left": "the look was killed", "busy": True}
    return found


def _say(said: int, request: dict[str, Any]) -> None:
    """As a process of its own, which holds no stream of the login: look, and end."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        bucket, checkpoints = (os.path.expanduser(request[key]) for key in ("bucket", "checkpoints"))
        try:
            found = {"left": changed(bucket, checkpoints), "busy": True}
        except UnconfirmedError as why:
            found = {"left": str(why), "busy": False}
        except OSError as error:
            name = "" if error.filename is None else f"{os.path.relpath(error.filename, bucket)}: "
            found = {"left": f"{name}{error.strerror}", "busy": False}
        left = str(found["left"]).encode(errors="backslashreplace")[:SHOWN].decode(errors="replace")
        os.write(said, json.dumps({**found, "left": left}).encode())
    finally:
        os._exit(0)


def changed(bucket: str, checkpoints: str) -> str:
    """What has changed while the mount forgot what it knew; "" if all that was there is in the bucket.

    Raises:
        UnconfirmedError: something is not in the bucket.
        OSError: the mount failed.
    """
    if not os.path.ismount(bucket):
        raise UnconfirmedError("the bucket is not mounted any more")
    before = dict(_files(checkpoints, ""))
    if not before:
        return ""
    newest = sorted(before, key=lambda name: before[name][1], reverse=True)[:NEWEST]
    _at_once(lambda name: _sync(os.path.join(checkpoints, name)), newest)
    before = dict(_files(checkpoints, ""))
    trial, text = _trial(checkpoints)
    try:
        time.sleep(FRESH_S)
        after = dict(_files(checkpoints, ""))
        for name in sorted(before.keys() | after.keys()):
            if name not in after:
                raise UnconfirmedError(f"{name} is not in the bucket")
            if name not in before or before[name][0] != after[name][0]:
                return f"{name} still changes"
        _at_once(lambda name: _last_byte(os.path.join(checkpoints, name), after[name][0]), newest)
        if _last_byte(trial, len(text)) != text[-1:]:
            raise UnconfirmedError("a trial file came back as another one")
    finally:
        with suppress(OSError):
            os.remove(trial)
    return ""


def _files(directory: str, below: str) -> Iterator[tuple[str, tuple[int, float]]]:
    """Path, size and time of each file below a directory; none if there is no directory."""
    try:
        entries = sorted(os.scandir(os.path.join(directory, below)), key=lambda entry: entry.name)
    except FileNotFoundError:  # an empty directory is nothing in a bucket
        return
    for entry in entries:
        name = os.path.join(below, entry.name)
        if entry.is_dir(follow_symlinks=False):
            yield from _files(directory, name)
        elif entry.is_file(follow_symlinks=False):
            facts = entry.stat(follow_symlinks=False)
            yield name, (facts.st_size, facts.st_mtime)


def _at_once(look: Callable[[str], object], names: list[str]) -> None:
    """Look at some files at a time: each waits for the bucket, which may be a continent away.

    Raises:
        Exception: the first that a look raised.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow to import, and seldom needed

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for _ in pool.map(look, names):
            pass


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(file)


def _trial(checkpoints: str) -> tuple[str, bytes]:
    """Write a file beside the job's directory, one for each job and machine: its path and content."""
    whose = hashlib.sha256(f"{checkpoints} {socket.gethostname()}".encode()).hexdigest()
    path, text = os.path.join(os.path.dirname(checkpoints), f".confirm-{whose[:12]}"), os.urandom(16)
    try:
        with open(path, "wb") as file:
            file.write(text)
    except OSError as error:
        raise UnconfirmedError(f"a trial file cannot be written: {error.strerror}") from None
    return path, text


def _last_byte(path: str, size: int) -> bytes:
    """The last byte of a file, read from the bucket rather than from memory.

    Raises:
        UnconfirmedError: it is not there.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        found = os.pread(file, 1, size - 1) if size else b""
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(file)
    if size and not found:
        raise UnconfirmedError(f"{os.path.basename(path)} cannot be read back")
    return found
