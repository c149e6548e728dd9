"""Host keys of machines: pinned at first contact (trust on first use).

The key of a machine that was just rented is not known from elsewhere, so the first contact trusts it, and
does nothing but ask for it. From then on a machine with another key is another machine, and is sent nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: ssh's message about a key that is not the pinned one.
CHANGED = b"Host key verification failed"


class HostKeys:
    """One file per machine, in the format of ssh's known_hosts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)

    def path(self, cluster: str) -> Path:
        """The file for the key of a machine."""
        return self._root / cluster.replace("/", "_")

    def is_pinned(self, cluster: str) -> bool:
        """Whether the key of a machine is known."""
        return self.path(cluster).exists()

    @contextmanager
    def first_contact(self, cluster: str) -> Iterator[Path]:
        """A file for ssh to write the key to; it becomes the pinned one unless another contact was first."""
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
        """Drop the key of a machine that is gone."""
        self.path(cluster).unlink(missing_ok=True)

    def options(self, cluster: str, known: Path, *, first: bool = False) -> dict[str, str]:
        """ssh's options; with `first`, ssh accepts any key and shares no connection."""
        options = {
            "StrictHostKeyChecking": "accept-new" if first else "yes",
            "UserKnownHostsFile": str(known),
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": cluster,  # addresses of rented machines are used again
            "HashKnownHosts": "no",
            "UpdateHostKeys": "no",
        }
        return options | ({"ControlMaster": "no", "ControlPath": "none"} if first else {})
