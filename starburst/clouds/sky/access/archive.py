"""Copies directories of jobs to machines and back, packed by tar.

Jobs may put anything into these directories, links included. Neither end follows a link: a directory is
opened as itself or not at all, tar packs a link as a link, and what arrives is unpacked into a new, private
directory. It is bounded by `MAX_BYTES` and by the free disk space, and may contain only files, directories
and links.
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

#: Bytes of one packed directory; and bytes of the local disk that are left free.
MAX_BYTES, KEPT_FREE = 1 << 40, 1 << 30

#: Exit codes on a machine: no such directory; a link in its place.
NO_DIRECTORY, IS_LINK = 44, 45

#: tar's exit code where a file was written to while it was packed.
CHANGED_MEANWHILE = 1

#: For files of a job whose image runs as root, which only root can read.
_AS_ROOT = 'S=; if sudo -n true 2>/dev/null; then S="sudo -n"; fi; '

#: Unpacks at most $1 bytes into the directory $2, without owners and without setuid bits.
_UNPACK = 'set -o pipefail; head -c "$1" | tar -C "$2" --no-same-owner --no-same-permissions -xf -'


@contextmanager
def packing(local: Path) -> Iterator[tuple[list[str], int]]:
    """The program that packs a local directory, and the file descriptor that it must inherit.

    Raises:
        UnsafeError: it is a link, or no directory.
    """
    try:
        directory = os.open(local, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnsafeError(f"{local}: not a directory of its own ({error.strerror}); remove it") from error
    try:
        yield ["tar", "-C", f"/proc/self/fd/{directory}", "--sparse", "-cf", "-", "."], directory
    finally:
        os.close(directory)


def pack_there(remote: str) -> str:
    """The command line that packs a directory of a machine."""
    check = f"[ ! -L {remote} ] || exit {IS_LINK}; [ -d {remote} ] || exit {NO_DIRECTORY}; "
    return f"{check}{_AS_ROOT}exec $S tar -C {remote} --sparse -cf - ."


def unpack_there(remote: str) -> str:
    """The command line that replaces a directory of a machine by the archive on stdin."""
    new, old = f"{remote}.new", f"{remote}.old"
    return (
        f"{_AS_ROOT}$S rm -rf {new} {old} && mkdir -p {new} && tar -C {new} -xf - && "
        f"{{ [ ! -e {remote} -a ! -L {remote} ] || mv {remote} {old}; }} && mv {new} {remote} && "
        f"$S rm -rf {old}"
    )


@contextmanager
def unpacking(local: Path) -> Iterator[tuple[list[str], Path]]:
    """The program that unpacks stdin, and its target directory, which is removed unless `put` moved it.

    Raises:
        LocalError: the disk is full.
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
    """Replace a directory by an unpacked one.

    Raises:
        SkyError: it contains something that is no file, directory or link.
    """
    for where, directories, files in os.walk(new):
        for name in (*directories, *files):
            path = os.path.join(where, name)
            kind = os.lstat(path).st_mode
            if stat.S_ISDIR(kind):
                os.chmod(path, stat.S_IMODE(kind) | 0o700)  # so that it can be read and removed
            elif stat.S_ISREG(kind):
                os.chmod(path, stat.S_IMODE(kind) | 0o400)  # so that it can be packed
            elif not stat.S_ISLNK(kind):
                raise SkyError(f"{name!r} is no file, directory or link")
    new.chmod(0o755)
    old = local.with_name(f".{local.name}.old")
    _remove(old)
    with suppress(FileNotFoundError):
        local.rename(old)
    new.rename(local)
    _remove(old)


def _remove(path: Path) -> None:
    """Remove what is there; links are not followed."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
