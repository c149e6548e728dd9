"""ssh's host keys: the one that a machine has at first contact is pinned, and stays.

Nobody tells us the key of a machine that was just rented, so the first contact is taken on trust, and does
nothing but ask for the key. From then on another key is another machine: it is told nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: ssh's words for a key that is not the pinned one.
CHANGED = b"Host key verification failed"


class HostKeys:
    """A file for each machine below a directory, in ssh's own form."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)

    def path(self, cluster: str) -> Path:
        """Where the key of a machine is, or would be."""
        return self._root / cluster.replace("/", "_")

    def is_pinned(self, cluster: str) -> bool:
        """Whether there was a first contact."""
        return self.path(cluster).exists()

    @contextmanager
    def first_contact(self, cluster: str) -> Iterator[Path]:
        """A file for ssh to write the key to. It is kept if nobody else was first."""
        number, name = tempfile.mkstemp(dir=self._root, prefix=".")
        try:
            yield Path(name)
            if os.path.getsize(name):
                os.fsync(number)
                with suppress(FileExistsError):
                    os.link(name, self.path(cluster))
        finally:
            os.close(number)
            os.unlink(name)

    def forget(self, cluster: str) -> None:
        """The machine is no more."""
        self.path(cluster).unlink(missing_ok=True)

    def options(self, cluster: str, known: Path, *, first: bool = False) -> dict[str, str]:
        """ssh's options; `first` takes any key and shares no connection."""
        options = {
            "StrictHostKeyChecking": "accept-new" if first else "yes",
            "UserKnownHostsFile": str(known),
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": cluster,  # addresses of rented machines are used again
            "HashKnownHosts": "no",
            "UpdateHostKeys": "no",
        }
        return options | ({"ControlMaster": "no", "ControlPath": "none"} if first else {})
