"""The real kubectl: of this machine, or of Debian's package."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from tests.debian import unpacked


@cache
def kubectl() -> Path:
    """Where it is."""
    installed = shutil.which("kubectl")
    return Path(installed) if installed else unpacked("kubectl", "bin/kubectl", "kubernetes-client")
