"""Directories of jobs that go to machines and come from them, as tar packs them.

Whose they are may put anything there, links and all. Neither end follows one: a directory is opened as itself
or not at all, tar packs a link as a link, and what comes is unpacked into a new directory that nobody else is
in. It is bounded by `MAX_BYTES` and by the room there is, and consists of files, directories and links.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from starburst.clouds.sky.access.ports import LocalError, SkyError, UnsafeError

#: Of one directory, packed; and what is left free of the disk that it comes to.
MAX_BYTES, KEPT_FREE = 1 << 40, 1 << 30

#: Exit codes on a machine: it has no such directory; there is a link in its place.
NO_DIRECTORY, IS_LINK = 44, 45

#: A job whose image runs as root leaves files that only root can read.
_AS_ROOT = 'S=; if sudo -n true 2>/dev/null; then S="sudo -n"; fi; '

#: Of at most $1 bytes into the directory $2; no owners, nor bits that give somebody's rights away.
_UNPACK = 'set -o pipefail; head -c "$1" | tar -C "$2" --no-same-owner --no-same-permissions -xf -'


@contextmanager
def packing(local: Path) -> Iterator[tuple[list[str], int]]:
    """The program that packs a directory of ours, and the file descriptor of it that it is to have.

    Raises:
        UnsafeError: it is a link, or no directory.
    """
    try:
        directory = os.open(local, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnsafeError(f"{local}: not a directory of its own ({error.strerror}); remove it") from error
    try:
        yield ["tar", "-C", f"/proc/self/fd/{directory}", "-cf", "-", "."], directory
    finally:
        os.close(directory)


def pack_there(remote: str) -> str:
    """The command line that packs a directory of a machine."""
    check = f"[ ! -L {remote} ] || exit {IS_LINK}; [ -d {remote} ] || exit {NO_DIRECTORY}; "
    return f"{check}{_AS_ROOT}exec $S tar -C {remote} -cf - ."


def unpack_there(remote: str) -> str:
    """The command line that replaces a directory of a machine by what comes."""
    new, old = f"{remote}.new", f"{remote}.old"
    return (
        f"{_AS_ROOT}$S rm -rf {new} {old} && mkdir -p {new} && tar -C {new} -xf - && "
        f"{{ [ ! -e {remote} -a ! -L {remote} ] || mv {remote} {old}; }} && mv {new} {remote} && "
        f"$S rm -rf {old}"
    )


@contextmanager
def unpacking(local: Path) -> Iterator[tuple[list[str], Path]]:
    """The program that unpacks what comes, and where to; it is removed in the end, if `put` did not take it.

    Raises:
        LocalError: there is no room.
    """
    local.parent.mkdir(parents=True, exist_ok=True)
    limit = min(MAX_BYTES, shutil.disk_usage(local.parent).free - KEPT_FREE)
    if limit <= 0:
        raise LocalError(f"{local.parent}: less than {KEPT_FREE >> 30} GiB of the disk is free")
    new = Path(tempfile.mkdtemp(prefix=f".{local.name}-", dir=local.parent))
    try:
        yield ["bash", "-c", _UNPACK, "unpack", str(limit), str(new)], new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def put(new: Path, local: Path) -> None:
    """Make a directory what was unpacked.

    Raises:
        SkyError: there is something in it that is no file, directory or link.
    """
    for where, directories, files in os.walk(new):
        for name in (*directories, *files):
            path = os.path.join(where, name)
            kind = os.lstat(path).st_mode
            if stat.S_ISDIR(kind):
                os.chmod(path, stat.S_IMODE(kind) | 0o700)  # that it can be looked into, and removed
            elif not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
                raise SkyError(f"{name!r} is no file, directory or link")
    new.chmod(0o755)
    old = local.with_name(f".{local.name}.old")
    _remove(old)
    with suppress(FileNotFoundError):
        local.rename(old)
    new.rename(local)
    _remove(old)


def _remove(path: Path) -> None:
    """Whatever is there, and nothing that it leads to."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
