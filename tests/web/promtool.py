"""The real promtool: of this machine, or of Debian's package."""

from __future__ import annotations

import shutil
from functools import cache

from tests.debian import unpacked


@cache
def promtool() -> str:
    """Where it is."""
    return shutil.which("promtool") or str(unpacked("promtool", "bin/promtool", "prometheus"))
