"""The real promtool: of this machine, or of Debian's package, unpacked beside the laboratory's binaries."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from functools import cache

from tests.kube.lab import skip, tools

PACKAGE = "prometheus"


@cache
def promtool() -> str:
    """Where it is."""
    installed = shutil.which("promtool")
    if installed:
        return installed
    home = tools() / "promtool"
    home.mkdir(parents=True, exist_ok=True)
    program = home / "usr" / "bin" / "promtool"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            if shutil.which("apt-get") is None:
                skip("there is no promtool, and no apt-get to fetch it with")
            try:
                fetch = ["apt-get", "download", PACKAGE]
                subprocess.run(fetch, cwd=home, capture_output=True, timeout=120, check=True)
                (package,) = home.glob(f"{PACKAGE}_*.deb")
                unpack = ["dpkg", "-x", str(package), str(home)]
                subprocess.run(unpack, capture_output=True, timeout=60, check=True)
            except (subprocess.SubprocessError, ValueError) as error:
                skip(f"Debian's {PACKAGE} cannot be fetched: {error}")
    return str(program)
