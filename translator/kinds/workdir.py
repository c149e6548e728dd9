"""The directory of the submitting machine that goes along with a command or a batch script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from translator.kinds.local_files import LocalFiles, MadeFiles, WantedPath
from translator.kinds.prelude import WORK, Prelude

#: Files whose patterns leave files of the directory out.
IGNORE_FILES = (".gitignore", ".starburstignore")


def with_directory(prelude: Prelude, local: LocalFiles, made: Sequence[MadeFiles] = ()) -> Prelude:
    """The prelude with made files and the submitting machine's directory, in which the program starts."""
    if not local.directory and not made:
        return prelude
    wanted = [WantedPath(local.directory, WORK, IGNORE_FILES)] if local.directory else []
    archive = local.packed(wanted, made)
    return replace(prelude, archive=archive, has_work=True)
