"""Debian's podman with all of its state in a directory, and an image that is made of Debian's busybox."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from resource import RLIMIT_NOFILE, RLIMIT_NPROC, getrlimit

from tests.debian import PODMAN, require

PROGRAM, RUNC, BUSYBOX = PODMAN[0]
#: Open files and processes of a container.
LIMIT = 16_384
IMAGE = "localhost/busybox:test"
#: What the image has beside busybox by its own name.
APPLETS = ("sh", "cat", "sleep", "seq", "stat", "tail", "id", "kill", "true", "df", "nproc", "grep")


class Podman:
    """One that nobody else uses; `script` calls it, as a program of the name podman."""

    def __init__(self, directory: Path) -> None:
        require(*PODMAN)
        self._directory = directory
        # Its own defaults are above what a machine of tests may allow.
        files, processes = (min(LIMIT, getrlimit(which)[1]) for which in (RLIMIT_NOFILE, RLIMIT_NPROC))
        limits = [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]
        (directory / "containers.conf").write_text(f"[containers]\ndefault_ulimits = {limits}\n")
        settings = f"/usr/bin/env CONTAINERS_CONF={directory}/containers.conf"
        state = f"--root {directory}/storage --runroot {directory}/run --storage-driver vfs"
        rest = f"--runtime {RUNC} --cgroup-manager cgroupfs --events-backend none"
        self._command = f"{settings} {PROGRAM} {state} {rest}".split()
        self.script = f'exec {" ".join(self._command)} "$@"\n'

    def ask(self, *words: str) -> str:
        """What a call prints that must succeed."""
        done = subprocess.run(
            [*self._command, *words], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"podman {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def make_image(self) -> None:
        """IMAGE, with an entry point and a variable of its own."""
        root = self._directory / "rootfs"
        for name in ("bin", "tmp", "etc"):
            (root / name).mkdir(parents=True)
        shutil.copy(BUSYBOX, root / "bin" / "busybox")
        for name in APPLETS:
            (root / "bin" / name).symlink_to("busybox")
        archive = self._directory / "rootfs.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], timeout=60, check=True)
        self.ask("import", "-c", "ENV IMAGE_SAYS=hello", "-c", 'CMD ["sh"]', str(archive), IMAGE)

    def containers(self) -> str:
        """Ids of all containers, dead ones included."""
        return self.ask("ps", "-aq")

    def end(self) -> None:
        """Remove what is left of containers and of mounts."""
        self.ask("rm", "-af", "-t", "0")
        for mounted in _mounts(self._directory):
            subprocess.run(["umount", mounted], timeout=60, check=False)


def _mounts(directory: Path) -> list[str]:
    """What is mounted below a directory, the innermost first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return sorted(
        (line.split()[1] for line in lines if line.split()[1].startswith(f"{directory}{os.sep}")),
        reverse=True,
    )
