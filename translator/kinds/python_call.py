"""A call of a Python function as the Job that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import Any

from translator.kinds.command_job import CommandJob
from translator.kinds.local_files import LocalFiles, MadeFiles
from translator.kinds.overrides import Overrides
from translator.kinds.prelude import Prelude
from translator.kinds.workdir import with_directory

#: In the archive: the directory that Python is given to run; the program starts beside it.
_CALL = "call"
_LINES = """\
starburst_python={first}
command -v "$starburst_python" >/dev/null 2>&1 || starburst_python={second}
command -v "$starburst_python" >/dev/null 2>&1 ||
  starburst_fail "there is no $starburst_python here, which calls the function"
set -- "$starburst_python" "$@"
"""


def call_manifest(
    name: str, files: Mapping[str, bytes], pythons: tuple[str, str], local: LocalFiles, overrides: Overrides
) -> dict[str, Any]:
    """The manifest of a Job that runs the files of a call with the first of two Pythons that is there.

    `name` is that of the function, by which the files are called in what the user is told.
    """
    made = MadeFiles(f"the call of {name}", {f"{_CALL}/{file}": content for file, content in files.items()})
    lines = _LINES.format(first=quote(pythons[0]), second=quote(pythons[1]))
    prelude = replace(with_directory(Prelude(), local, [made]), lines=lines)
    hints = {"array": overrides.array} if overrides.array else {}
    job = overrides.applied(CommandJob(name=name, command=(f"../{_CALL}",), env=prelude.env, hints=hints))
    return replace(job, command=prelude.wrap(job.command)).manifest()
