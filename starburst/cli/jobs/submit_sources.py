"""The texts that `starburst submit` sends: files as they are, and jobs that are no manifests as manifests."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starburst.app.directories.packing import SubmittersFiles
from starburst.app.errors import UserError
from starburst.app.reading.sources import ManifestText
from starburst.cli.jobs.submit_options import SubmitOptions
from starburst.cli.output import say
from translator.errors import ManifestErrors
from translator.kinds.command_job import name_of_command
from translator.kinds.conversion import command_manifest, converted
from translator.kinds.sbatch.directives import is_batch_script

#: Ends of the names of files that are submitted with their directory.
MANIFESTS = (".yaml", ".yml", ".json")
_NOTHING = "submit: name a file, or a command behind --, as in submit --gpus 1 -- python train.py"


@dataclass(slots=True)
class SubmitSources:
    """Texts of manifests, and what was not kept of those that were something else, by the job."""

    texts: list[ManifestText] = field(default_factory=list)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Whether the job was written as options and a command, so that no field of a manifest means anything.
    of_command: bool = False

    def notes_of(self, name: object) -> tuple[str, ...]:
        """The notes on a job, once, for the first job of an array."""
        found = [key for key in self.notes if key in (name, _without_index(str(name)))]
        return self.notes.pop(found[0]) if found else ()


def read_submission(options: SubmitOptions) -> SubmitSources:
    """The texts of the files, or of the command.

    Raises:
        UserError: an option or a text that is no manifest is invalid, or a directory is too large.
    """
    files, words = _files(options.files or []), options.command
    local = SubmittersFiles(
        "" if options.no_workdir else _directory(options.workdir), lambda text: say(text, sys.stderr)
    )
    overrides = options.job.overrides(words)
    if not files:
        if not words or not words[0].strip():
            raise UserError(_NOTHING)
        manifest = command_manifest(words, name_of_command(words), local, overrides, ray=options.job.ray)
        source = ManifestText(f"command {shlex.join(words[:1])}", json.dumps(manifest))
        return SubmitSources([source], of_command=True)
    if options.job.ray:
        raise UserError("--ray: is for a command behind --, as in submit --ray --nodes 2 -- python train.py")
    found = SubmitSources()
    for text in map(read_file, files):
        if words and not is_batch_script(text.text):
            raise UserError(
                f"{text.name}: words behind -- are for a batch script, and this is none; drop them"
            )
        try:
            other = None if text.problem else converted(text.text, text.name, local, overrides)
        except ManifestErrors as errors:
            raise UserError(str(errors)) from None
        if other is None and (given := _not_for_manifests(options)):
            what = "is for a command, a batch script or a SkyPilot task"
            raise UserError(f"{text.name}: {given[0]}: {what}; write it into the manifest")
        found.texts.append(text if other is None else ManifestText(text.name, other.text))
        found.notes |= {} if other is None else other.notes
    return found


def _files(names: Sequence[str]) -> list[str]:
    """The files, with those of manifests in place of a directory, as kubectl has it."""
    found: list[str] = []
    for name in names:
        if name == "-" or not os.path.isdir(name):
            found.append(name)
            continue
        try:
            inside = [str(path) for path in sorted(Path(name).iterdir()) if path.suffix in MANIFESTS]
        except OSError as error:
            raise UserError(f"{name}: cannot be read ({error.strerror}); name a directory of yours") from None
        if not inside:
            raise UserError(f"{name}: is a directory without a file in {', '.join(MANIFESTS)}; name one")
        found += inside
    return found


def _without_index(name: str) -> str:
    """The name of an array by that of one of its jobs."""
    array, _, index = name.rpartition("-")
    return array if index.isdigit() else name


def read_file(file: str) -> ManifestText:
    """The text of a file; - is standard input."""
    source = "<stdin>" if file == "-" else file
    try:
        return ManifestText(
            source, (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
        )
    except OSError as error:
        problem = f"{source}: cannot be read ({error.strerror}); name an existing YAML file"
    except UnicodeDecodeError:
        problem = f"{source}: is not a text file; write YAML in UTF-8"
    return ManifestText(source, problem=problem)


def _not_for_manifests(options: SubmitOptions) -> list[str]:
    """Options that say what a manifest says itself."""
    given = options.job.given()
    return [*given, "--workdir"] if options.workdir != Path(".") else given


def _directory(path: Path) -> str:
    found = os.path.expanduser(path)
    if not os.path.isdir(found):
        raise UserError(f"--workdir: '{path}': is no directory; name one, or give --no-workdir")
    return os.path.realpath(found)
