"""Runs what a kind was read as, as the embedded cluster does: its command with its variables."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starburst.app.directories.packing import SubmittersFiles
from starburst.domain.job import Submission
from translator.errors import ManifestErrors
from translator.intake.texts import read_firsts
from translator.kinds.conversion import converted
from translator.kinds.local_files import LocalFiles, MadeFiles, WantedPath
from translator.kinds.overrides import NONE, Overrides


@dataclass(frozen=True)
class Elsewhere:
    """A submitting machine without a directory to take along."""

    directory: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    reads: bool = True

    def packed(self, wanted: Sequence[WantedPath], made: Sequence[MadeFiles] = ()) -> bytes:
        return SubmittersFiles().packed(wanted, made)


def read(
    text: str, source: str = "train.sbatch", local: LocalFiles | None = None, overrides: Overrides = NONE
) -> Submission:
    """The job of a script or task, as `starburst submit` reads it, with its notes; of an array the first."""
    found = converted(text, source, local or Elsewhere(), overrides)
    assert found is not None
    (item,) = read_firsts(found.text, source, suffix=lambda: "a1b2c")
    return replace(item, notes=(*(note for each in found.notes.values() for note in each),))


def problems(text: str, source: str = "train.sbatch", overrides: Overrides = NONE) -> list[str]:
    """What is wrong with a script or a task."""
    try:
        read(text, source, overrides=overrides)
    except ManifestErrors as bad:
        return str(bad).split("\n")
    return []


def run(item: Submission, where: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the one task of a job in a directory."""
    own: dict[str, Any] = {"STARBURST_JOB": item.job.id, "STARBURST_ATTEMPT": "1", "STARBURST_RANK": "0"}
    if item.job.array is not None:
        own |= {"STARBURST_ARRAY": item.job.array.array, "STARBURST_ARRAY_INDEX": str(item.job.array.index)}
    env = {"PATH": os.environ["PATH"], "HOME": str(where), **dict(item.workload.env), **own, **more}
    return subprocess.run(
        item.workload.command, cwd=where, env=env, capture_output=True, text=True, timeout=60, check=False
    )
