"""`starburst up`, in a process that was forked and not started anew."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from starburst.cli.main import run


def up(home: Path, config: Path, log: Path, *more: str) -> None:
    """What the command does with these options; ends the process."""
    os.setsid()
    with log.open("ab") as out, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ["STARBURST_HOME"] = str(home)
    sys.argv = ["starburst", "up", "--config", str(config), *more]
    run()
