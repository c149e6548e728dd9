"""What the scheduler's process and that of its API agree on."""

from __future__ import annotations

import struct
from pathlib import Path

from pydantic import BaseModel

from starburst.app.config.http import HttpConfig

#: A beat of the scheduler's loop: when, in monotonic seconds.
BEAT = struct.Struct("=d")


class StartupParameters(BaseModel):
    """What the API's process is for."""

    home: Path
    http: HttpConfig
    #: Whether its log is for people.
    text: bool
    #: Numbers of inherited files: the bound socket, and the line to the scheduler.
    socket: int
    line: int
    scheduler_pid: int
