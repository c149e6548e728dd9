"""Debian's packages for the tests of container engines; as a program it has all of them on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from tests.kube.lab import skip

#: What engines need, and the programs by which they are known to be there.
DOCKER = (("docker.io", "debootstrap"), ("dockerd", "debootstrap"))
PODMAN = (("podman", "runc", "busybox-static"), ("/usr/bin/podman", "/usr/sbin/runc", "/bin/busybox"))


def install(packages: Sequence[str], programs: Sequence[str]) -> None:
    """Have these programs on the machine, by these packages; else the test is skipped (in CI it fails)."""
    if os.geteuid() != 0:
        skip("a container engine needs root")
    if all(shutil.which(program) for program in programs):
        return
    if shutil.which("apt-get") is None:
        skip(f"there is no {' or no '.join(programs)}, and no apt-get to install them with")
    install_ = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    try:
        subprocess.run(["apt-get", "update"], capture_output=True, timeout=120, check=True)
        subprocess.run(install_, capture_output=True, timeout=600, check=True)
    except subprocess.SubprocessError as error:
        skip(f"Debian's {' '.join(packages)} cannot be installed: {error}")


if __name__ == "__main__":
    install(*DOCKER)
    install(*PODMAN)
