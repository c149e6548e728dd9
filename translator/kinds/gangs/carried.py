"""What the tasks of a gang take along so that one of them can start programs on all."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from translator.kinds.gangs.connection import SECRET
from translator.kinds.prelude import Prelude

LAUNCHER, STEP = "starburst-gang", "starburst-step"
#: The files of this folder that go along, by the names under which they lie beside each other there.
_FILES = {
    LAUNCHER: "launcher.py",
    STEP: "step.py",
    "starburst_connection.py": "connection.py",
    "starburst_task_server.py": "task_server.py",
}
_HERE = "translator.kinds.gangs."
_LINES = """\
command -v python3 >/dev/null 2>&1 ||
  starburst_fail "the image has no python3, which starts programs on several nodes; choose another"
export STARBURST_PROGRAMS="$starburst_programs"
unset RANK WORLD_SIZE LOCAL_RANK NODE_RANK NNODES  # of the gang; programs get those of their own launcher
"""


def with_launcher(prelude: Prelude) -> Prelude:
    """The prelude with the programs of a gang; its command is then to be run by `LAUNCHER`."""
    return replace(prelude, programs={**prelude.programs, **_programs()}, lines=f"{_LINES}{prelude.lines}")


def secret() -> dict[str, str]:
    """The variable by which the tasks of a job know each other."""
    return {SECRET: secrets.token_hex(16)}


@cache
def _programs() -> Mapping[str, str]:
    """The texts of the programs; they import each other as siblings."""
    texts = {
        name: (Path(__file__).parent / file).read_text(encoding="utf-8") for name, file in _FILES.items()
    }
    return {name: text.replace(_HERE, "starburst_").rstrip("\n") for name, text in texts.items()}
