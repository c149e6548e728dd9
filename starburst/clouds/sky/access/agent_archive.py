"""The agent as one file: an archive that a machine's Python runs, with the modules that local runs have too.

The archive has the modules under their own names (`starburst.runs.supervisor...`), so that the same import
statements work here and there; packages above them are empty in it. It holds sources only, uncompressed and
with fixed times, in the order of their names: its bytes depend on nothing but the sources.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

import starburst

ROOT = Path(str(starburst.__file__)).parents[1]
#: Everything in these packages is sent, except what serves this machine only.
PACKAGES = ("starburst/runs/supervisor", "starburst/clouds/sky/agent")
NOT_SENT = {"starburst/runs/supervisor/__main__.py"}
MAIN = "starburst/clouds/sky/agent/__main__.py"
#: The earliest time that an archive can hold.
FIXED_TIME = (1980, 1, 1, 0, 0, 0)


@cache
def agent_archive() -> bytes:
    """The archive, for `python agent.pyz`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, source in sorted(_sources().items()):
            archive.writestr(zipfile.ZipInfo(name, FIXED_TIME), source)
    return buffer.getvalue()


@cache
def agent_path() -> str:
    """Where the agent is on a machine. Each version has a name of its own: none changes while in use."""
    return f"~/starburst/agent-{hashlib.sha256(agent_archive()).hexdigest()[:12]}.pyz"


def _sources() -> dict[str, bytes]:
    """Contents of the archive by name."""
    found = {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in (ROOT / package).glob("*.py")
    }
    parents = {parent for name in PACKAGES for parent in Path(name).parents if parent.name}
    empty = {f"{parent.as_posix()}/__init__.py": b"" for parent in parents}
    sent = {name: source for name, source in found.items() if name not in NOT_SENT}
    main = sent.pop(MAIN)
    return {**sent, **empty, "__main__.py": main}
