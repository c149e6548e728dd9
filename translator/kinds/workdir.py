"""The directory of the submitting machine that goes along with a command or a batch script."""

from __future__ import annotations

from dataclasses import replace

from translator.kinds.local_files import LocalFiles, WantedPath
from translator.kinds.prelude import WORK, Prelude

#: Files whose patterns leave files of the directory out.
IGNORE_FILES = (".gitignore", ".starburstignore")


def with_directory(prelude: Prelude, local: LocalFiles) -> Prelude:
    """The prelude with the submitting machine's directory, in which the program then starts."""
    if not local.directory:
        return prelude
    archive = local.packed([WantedPath(local.directory, WORK, IGNORE_FILES)])
    return replace(prelude, archive=archive, has_work=True)
