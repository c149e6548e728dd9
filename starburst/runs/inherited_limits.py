"""The umask and the limit of open files that this process was started with.

`starburst up` changes both for itself; commands of jobs get the values from before.
"""

from __future__ import annotations

import re
import resource
from pathlib import Path

_FOUND = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)

#: Values at the first import of this module, which is before `up` changes them.
UMASK = int(_FOUND[1], 8) if _FOUND else 0o022
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
