"""Programs of Debian's packages, unpacked beside the laboratory's binaries where they are not installed."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.kube.lab import skip, tools


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
