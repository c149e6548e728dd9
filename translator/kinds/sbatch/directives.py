"""The `#SBATCH` lines of a batch script, and its shebang."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from translator.errors import ManifestError, ManifestErrors

#: How a directive begins; sbatch needs no blank before the options.
_BEGIN = r"#SBATCH(?:[ \t]+|(?=-))"
#: What some editors of Windows put before a text.
_MARK = "\ufeff"
#: A script with at least one directive; what comes before may be blank lines and comments.
_IS_SCRIPT = re.compile(rf"{_MARK}?\s*#!.*\n(?:[ \t]*(?:#.*)?\n)*{_BEGIN}")
_DIRECTIVE = re.compile(rf"{_BEGIN}(.*)")
_HET_JOB = re.compile(rf"{_BEGIN}(?:hetjob|packjob)")

#: Options with a value: the long name of each letter.
LETTERS = {
    **{"A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir"},
    **{"d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "i": "input", "J": "job-name"},
    **{"L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "o": "output"},
    **{"p": "partition", "q": "qos", "S": "core-spec", "t": "time", "w": "nodelist", "x": "exclude"},
    **{"B": "extra-node-info", "H": "hold", "k": "no-kill", "O": "overcommit", "s": "oversubscribe"},
    **{"Q": "quiet", "v": "verbose", "W": "wait", "h": "help", "V": "version"},
}
#: Other spellings of long names.
_ALIASES = {
    "tasks-per-node": "ntasks-per-node",
    "tasks": "ntasks",
    "workdir": "chdir",
    "share": "oversubscribe",
}
#: Options without a value, or with one after = only.
FLAGS = frozenset(
    (
        *("hold", "no-kill", "overcommit", "oversubscribe", "quiet", "verbose", "wait", "help", "version"),
        *("contiguous", "exclusive", "get-user-env", "ignore-pbs", "nice", "no-requeue", "parsable"),
        *("propagate", "reboot", "requeue", "spread-job", "stepmgr", "test-only", "use-min-nodes", "usage"),
        *("kill-on-invalid-dep-flag", "resv-ports", "disable-status"),
    )
)


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """One option of a script: its long name, its value ("" without one) and its line."""

    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class BatchScript:
    """The text of a script with its interpreter and options."""

    text: str
    interpreter: tuple[str, ...]
    directives: tuple[SbatchOption, ...]
    #: Lines of directives below the first command, which Slurm does not read.
    late: tuple[int, ...] = ()


def is_batch_script(text: str) -> bool:
    """Whether a text is a script for sbatch: it begins with a shebang, and has a directive at the top."""
    return _IS_SCRIPT.match(text) is not None


def read_script(text: str, source: str) -> BatchScript:
    """A script for sbatch.

    Raises:
        ManifestErrors: a directive cannot be taken apart.
    """
    text = text.removeprefix(_MARK).lstrip().replace("\r\n", "\n")
    first, *lines = text.split("\n")
    found: list[SbatchOption] = []
    late: list[int] = []
    errors: list[ManifestError] = []
    in_head = True
    for number, line in enumerate(lines, 2):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            in_head = in_head and (not line.strip() or line.lstrip().startswith("#"))
        elif not in_head:
            late.append(number)
        elif _HET_JOB.match(line):
            errors.append(
                _error(source, number, "hetjob", "jobs of several parts are not taken; submit each")
            )
        else:
            try:
                found += _options(list(_words(directive[1])), number)
            except ValueError as bad:
                errors.append(_error(source, number, directive[1].strip(), f"cannot be read: {bad}"))
    if errors:
        raise ManifestErrors(errors)
    return BatchScript(text, tuple(first.removeprefix("#!").split()), tuple(found), tuple(late))


def _error(source: str, line: int, what: str, mend: str) -> ManifestError:
    return ManifestError(source, 0, f"line {line}, #SBATCH {what}", None, mend)


def _words(text: str) -> Iterator[str]:
    """The words of a directive up to a comment; a # within a word, as of an image, begins none.

    Raises:
        ValueError: a quotation is not closed.
    """
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return itertools.takewhile(lambda word: not word.startswith("#"), lexer)


def _options(words: list[str], line: int) -> Iterator[SbatchOption]:
    """The options in the words of one directive.

    Raises:
        ValueError: a word is no option, or its value is missing.
    """
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _ALIASES.get(name.replace("_", "-"), name.replace("_", "-"))
            if not equals and name not in FLAGS:
                value = _value(name, rest)
        elif word.startswith("-") and len(word) > 1:
            name, value = LETTERS.get(word[1], ""), word[2:]
            if not name:
                raise ValueError(f"-{word[1]} is no option of sbatch")
            if not value and name not in FLAGS:
                value = _value(name, rest)
            value = value.removeprefix("=")
        else:
            raise ValueError(f"{word!r} is no option; it begins with no dash")
        yield SbatchOption(name, value, line)


def _value(name: str, rest: Iterator[str]) -> str:
    try:
        return next(rest)
    except StopIteration:
        raise ValueError(f"--{name} has no value") from None
