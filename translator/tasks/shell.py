"""The shell script that runs a container's command line on an instance with unchanged arguments."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShellExpression:
    """A part of a text that is known at run time only: shell code to be put in double quotes."""

    code: str


#: A text as a sequence of literals and shell expressions.
ShellWord = tuple[str | ShellExpression, ...]

#: Creates a directory, with sudo if the task's user may not.
_MAKE_DIR = (
    'make_dir() { mkdir -p "$1" 2>/dev/null || '
    '{ sudo mkdir -p "$1" && sudo chown "$(id -u):$(id -g)" "$1"; }; }'
)


#: Interactive bash reads a line that begins with ^ as a history substitution, even within quotes.
_NO_HISTORY = '[ -z "${BASH_VERSION:-}" ] || set +H'


@dataclass(frozen=True, slots=True)
class File:
    """A file that is written before the command starts; `mode` None leaves permissions to the umask."""

    path: str
    content: ShellWord
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class NodeScript:
    """The inputs of the script of one node of a task."""

    command: tuple[ShellWord, ...]
    #: Variables that the script exports.
    exports: tuple[tuple[str, ShellWord], ...] = ()
    #: Variables that a shell would change or cannot hold; `env` sets them for the command only.
    beside: tuple[tuple[str, ShellWord], ...] = ()
    directories: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    #: Variables that are unset after the files are written.
    forgotten: tuple[str, ...] = ()
    working_dir: str | None = None
    #: Seconds until SIGTERM, and from there until SIGKILL.
    limit_s: int | None = None
    grace_s: int = 30


def is_changed(text: str) -> bool:
    """Whether SkyPilot's `bash -i` would change a quoted text (see `_NO_HISTORY`)."""
    return "\n^" in text


def text_of(word: ShellWord) -> str | None:
    """The text; None if a part is known at run time only."""
    parts = [part for part in word if isinstance(part, str)]
    return "".join(parts) if len(parts) == len(word) else None


def quoted(word: ShellWord) -> str:
    """The word, quoted so that a shell passes it as one unchanged argument."""
    parts = [
        f'"{part.code}"' if isinstance(part, ShellExpression) else shlex.quote(part) for part in word if part
    ]
    return "".join(parts) or "''"


def needs_env(command: Sequence[ShellWord], beside: Sequence[object]) -> bool:
    """Whether `env` must start the command; `env` would take a first word with "=" for a variable."""
    return bool(beside) or (text_of(command[0]) or "").startswith("-")


def script(run: NodeScript) -> str:
    """The `run` of a task. It ends with exec, so signals reach the command and its exit code is returned.

    POSIX shell; SkyPilot executes it by `bash -i` in ~/sky_workdir, with the task's envs and secrets set.
    """
    lines = [f"make_dir {shlex.quote(path)} || exit 1" for path in run.directories]
    for file in run.files:
        lines += _write(file)
    if run.forgotten:
        lines.append(f"unset {' '.join(run.forgotten)}")
    lines += [f"export {name}={quoted(word)}" for name, word in run.exports]
    if run.working_dir:
        directory = shlex.quote(run.working_dir)
        lines.append(f"make_dir {directory} && cd {directory} || exit 1")
    if any(line.startswith("make_dir") for line in lines):
        lines.insert(0, _MAKE_DIR)
    text = "\n".join([*lines, _exec(run), ""])
    return f"{_NO_HISTORY}\n{text}" if is_changed(text) else text


def _exec(run: NodeScript) -> str:
    words = ["exec"]
    if run.limit_s is not None and run.grace_s:
        words += ["timeout", "-s", "TERM", "-k", str(run.grace_s), str(run.limit_s)]
    elif run.limit_s is not None:  # timeout takes -k 0 for no SIGKILL
        words += ["timeout", "-s", "KILL", str(run.limit_s)]
    if needs_env(run.command, run.beside):
        words += ["env", "--", *(quoted((f"{name}=", *word)) for name, word in run.beside)]
    return " ".join([*words, *map(quoted, run.command)])


def _write(file: File) -> list[str]:
    path = shlex.quote(file.path)
    directory = shlex.quote(file.path.rpartition("/")[0] or "/")
    written = f"printf %s {quoted(file.content)} > {path}"
    if file.mode is not None:  # at no time with more permissions than `mode`
        written = f"(umask 077 && {written}) && chmod {file.mode:o} {path}"
    return [f"make_dir {directory} && rm -f {path} && {written} || exit 1"]
