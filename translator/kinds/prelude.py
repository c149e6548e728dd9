"""What runs in a task before its program: files are unpacked, programs and variables of its kind are set.

The files come in the task's variables, in base64. So they go wherever the job goes, to nodes, rented machines
and pods alike, with every attempt and without a server; the size of an environment is their limit.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote

#: Bytes of the largest archive: in base64 it takes two thirds of what a container's texts may have in all.
MAX_PACKED = 480 * 1024
#: Letters of base64 in a variable: Docker takes 64 KiB a line of its env file.
CHUNK = 60_000
#: In the archive: the directory in which the program starts, and what is copied to other places.
WORK, MOUNTS = "work", "mounts"

_FUNCTIONS = """\
starburst_fail() { echo "starburst: $1" >&2; exit 127; }
starburst_place() {
  mkdir -p "$PWD/$1" 2>/dev/null && [ -w "$PWD/$1" ] && echo "$PWD/$1" || mktemp -d
}
"""
_UNPACK = """\
for starburst_program in base64 tar gzip; do
  command -v "$starburst_program" >/dev/null 2>&1 ||
    starburst_fail "the image has no $starburst_program, which unpacks the files of the job; choose another"
done
starburst_files=$(starburst_place starburst-files) || starburst_fail "no directory here can be written to"
printf %s "{chunks}" | base64 -d | tar -xzf - -C "$starburst_files" ||
  starburst_fail "the files of the job could not be unpacked in $starburst_files"
unset {names}
"""
#: The archive of an empty directory has no entry for it.
_ENTER = f'mkdir -p "$starburst_files/{WORK}" && cd "$starburst_files/{WORK}" || exit 127\n'
_PROGRAM = """\
cat >"$starburst_programs/{name}" <<'starburst-end'
{text}
starburst-end
chmod +x "$starburst_programs/{name}"
"""
_PLACE_OF_PROGRAMS = (
    'starburst_programs=$(starburst_place starburst-programs) || starburst_fail "no directory can be made"\n'
)
_PATH = "PATH=$starburst_programs:$PATH\nexport PATH\n"


@dataclass(frozen=True, slots=True)
class Prelude:
    """What a task does before its program."""

    #: A tar.gz, unpacked beside the program; empty is none.
    archive: bytes = b""
    #: The archive has the directory in which the program starts.
    has_work: bool = False
    #: Places to which parts of the archive below MOUNTS are copied, in their order.
    mounts: tuple[str, ...] = ()
    #: Texts of programs for the PATH, by name.
    programs: Mapping[str, str] = field(default_factory=dict)
    #: Further lines of sh, which come last.
    lines: str = ""

    def wrap(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command that runs this and then, in its place, the command."""
        script = self._script()
        return ("/bin/sh", "-c", f'{script}exec "$@"', "starburst", *command) if script else command

    @property
    def env(self) -> Mapping[str, str]:
        """The variables that hold the archive."""
        text = base64.b64encode(self.archive).decode()
        parts = (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))
        return {f"STARBURST_FILES_{number}": part for number, part in enumerate(parts)}

    def _script(self) -> str:
        script, names = "", list(self.env)
        if self.programs:
            texts = (_PROGRAM.format(name=name, text=text) for name, text in self.programs.items())
            script += "".join((_PLACE_OF_PROGRAMS, *texts, _PATH))
        if names:
            chunks = "".join(f"${{{name}}}" for name in names)
            script += _UNPACK.format(chunks=chunks, names=" ".join(names))
        for number, place in enumerate(self.mounts):
            script += _mounted(number, place)
        if self.has_work:
            script += _ENTER
        return f"{_FUNCTIONS if script else ''}{script}{self.lines}"


def _mounted(number: int, place: str) -> str:
    """Lines that copy a part of the archive to its place, whose ~ is the task's home."""
    target = f'"$HOME"/{quote(place[2:])}' if place.startswith("~/") else quote(place)
    source = f'"$starburst_files/{MOUNTS}/{number}"'
    copied = f"mkdir -p {target} && cp -R {source}/. {target}"
    here = f"if [ -d {source} ]; then {copied}; else cp {source} {target}; fi"
    failed = f"starburst_fail {quote(f'{place}: could not be written')}"
    return f'mkdir -p "$(dirname {target})" && {here} || {failed}\n'
