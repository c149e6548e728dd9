"""Debian's packages, for tests that need a program which this machine may lack."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from tests.kube.lab import skip

#: Seconds to wait for another apt-get, to read the lists, and to install.
LOCK_S, UPDATE_S, INSTALL_S = 300, 120, 600


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
