"""Whether the machine's cached mounts have uploaded everything that was written to them.

SkyPilot mounts a store of the mode MOUNT_CACHED with rclone, which writes to the disk first and uploads
later. Every ten seconds each mount's log gets a line on its cache; one that is younger than the last write
and names no upload says that all is in the store. SkyPilot's own jobs wait for the same line.
"""

from __future__ import annotations

import glob
import os
import re
import time
from typing import Any

#: SkyPilot's directory of these logs: one per mount.
LOGS = "~/.sky/rclone_log"
#: Bytes at the end of a log in which the line is looked for.
TAIL_BYTES = 65536
#: Seconds after the end of a write within which its file is in the line. rclone's times are whole seconds.
SETTLE_S = 2.0
LOOK_S = 0.5

#: rclone's line, as of 2018 and later: its time, and the files that wait for upload or are on their way.
_LINE = re.compile(
    rb"^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) .*vfs cache: cleaned: .*"
    rb"to upload (\d+), uploading (\d+)",
    re.MULTILINE,
)


def uploads(request: dict[str, Any]) -> dict[str, Any]:
    """Wait up to `wait_s` seconds until all is uploaded that was written before; what is left, or ""."""
    since = time.time() + SETTLE_S
    until = time.time() + float(request["wait_s"])
    logs = sorted(glob.glob(os.path.join(os.path.expanduser(LOGS), "*.log")))
    while True:
        left = next((why for why in (_left(log, since) for log in logs) if why), "")
        if not left or time.time() >= until:
            return {"left": left}
        time.sleep(LOOK_S)


def _left(log: str, since: float) -> str:
    """What a mount still has to upload; "" if its last line is younger than `since` and names nothing."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        lines = _LINE.findall(file.read(TAIL_BYTES))
    if not lines:
        return "a cached mount has not said how far its uploads are"
    at, waiting, under_way = lines[-1]
    if time.mktime(time.strptime(at.decode(), "%Y/%m/%d %H:%M:%S")) < since:
        return "a cached mount has not looked at its files since"
    count = int(waiting) + int(under_way)
    return f"{count} files wait for their upload" if count else ""
