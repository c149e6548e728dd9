"""Programs of Debian's packages: unpacked beside the laboratory's binaries, or installed on the machine.

As a program, `python -m tests.debian`, it installs all that tests of real servers do.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kube.lab import skip, tools

#: Seconds to wait for another apt-get, to read the lists, and to install.
LOCK_S, UPDATE_S, INSTALL_S = 300, 120, 600
#: What is installed: programs by which that is known, and their packages.
DOCKER = (("dockerd", "debootstrap"), ("docker.io", "debootstrap"))
PODMAN = (("/usr/bin/podman", "/usr/sbin/runc", "/bin/busybox"), ("podman", "runc", "busybox-static"))
RCLONE = (("rclone", "fusermount3"), ("rclone", "fuse3"))


def unpacked(name: str, program: str, *packages: str) -> Path:
    """A program below `usr` of these packages, fetched once; the test is skipped if they cannot be had."""
    home = tools() / name
    home.mkdir(parents=True, exist_ok=True)
    path = home / "usr" / program
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _unpack(name, home, packages)
    return path


def _unpack(name: str, home: Path, packages: tuple[str, ...]) -> None:
    if shutil.which("apt-get") is None:
        skip(f"there is no {name}, and no apt-get to fetch it with")
    try:
        fetch = ["apt-get", "download", *packages]
        subprocess.run(fetch, cwd=home, capture_output=True, timeout=300, check=True)
        for package in home.glob("*.deb"):
            unpack = ["dpkg", "-x", str(package), str(home)]
            subprocess.run(unpack, capture_output=True, timeout=60, check=True)
            package.unlink()
    except subprocess.SubprocessError as error:
        skip(f"Debian's {' '.join(packages)} cannot be fetched: {error}")


def require(programs: Sequence[str], packages: Sequence[str]) -> None:
    """Have these programs, for root of these packages; otherwise skip the test, or fail it if none may be."""
    if _lacking(programs):
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            skip(f"there is no {_lacking(programs)}; install Debian's {' '.join(packages)}")
        _install(packages)
        if _lacking(programs):
            skip(f"Debian's {' '.join(packages)} have no {_lacking(programs)}")


def _lacking(programs: Sequence[str]) -> str:
    return " ".join(program for program in programs if shutil.which(program) is None)


def _install(packages: Sequence[str]) -> None:
    patience = ["-o", f"DPkg::Lock::Timeout={LOCK_S}"]
    install = ["apt-get", "install", "-y", "--no-install-recommends", *patience, *packages]
    try:
        subprocess.run(["apt-get", "update", *patience], capture_output=True, timeout=UPDATE_S, check=True)
        subprocess.run(install, capture_output=True, timeout=LOCK_S + INSTALL_S, check=True)
    except subprocess.SubprocessError as error:
        skip(f"Debian's {' '.join(packages)} cannot be installed: {error}")


if __name__ == "__main__":
    for programs, packages in (DOCKER, PODMAN, RCLONE):
        require(programs, packages)
