"""Packs files of the submitting machine into the archive that goes along with a job."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.directories.ignored import IgnoreFile, is_ignored, read_patterns
from starburst.app.errors import UserError
from translator.kinds.local_files import MadeFiles, WantedPath
from translator.kinds.prelude import MAX_PACKED

#: Bytes and entries that are read at most before packing is given up.
MAX_BYTES, MAX_ENTRIES = 64 * 1024 * 1024, 10_000
#: Never taken along: the stores of version control.
_NEVER = frozenset((".git", ".hg", ".svn"))
_SKYIGNORE, _GITIGNORE = ".skyignore", ".gitignore"
#: Entries that an error names as the largest.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class SubmittersFiles:
    """The files of the user who submits (`LocalFiles`); `say` receives what goes along.

    `no_directory` is how the user says that no directory goes along.
    """

    directory: str = ""
    say: Callable[[str], None] = lambda _: None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    reads: bool = True
    no_directory: str = "--no-workdir"

    def packed(self, wanted: Sequence[WantedPath], made: Sequence[MadeFiles] = ()) -> bytes:
        """The paths and made files as one tar.gz; its size is said.

        Raises:
            UserError: a path is not there, cannot be read, or all of them are too large.
        """
        content = _Content(made=made, no_directory=self.no_directory)
        for each in wanted:
            content.add(each)
        archive = content.archive()
        names = ", ".join([*dict.fromkeys(each.path for each in wanted), *(each.label for each in made)])
        if len(archive) > MAX_PACKED:
            raise content.too_large(f"{-(-len(archive) // 1024)} KiB packed")
        size = f"{-(-len(archive) // 1024)} KiB packed"
        count = len(content.entries) + sum(len(each.contents) for each in made)
        self.say(f"taking along {names}: {_files(count)}, {size}")
        for note in content.notes:
            self.say(note)
        return archive


@dataclass(slots=True)
class _Content:
    """What goes into an archive: each entry's path here, its name there, and its size."""

    entries: list[tuple[Path, str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    size: int = 0
    path: str = ""
    made: Sequence[MadeFiles] = ()
    no_directory: str = ""

    def add(self, wanted: WantedPath) -> None:
        """Add a file, or what of a directory is not ignored."""
        self.path, root = wanted.path, Path(wanted.path).expanduser()
        try:
            kind = root.stat().st_mode
            if stat.S_ISREG(kind):
                self._take(root, wanted.target, root.stat())
            elif not stat.S_ISDIR(kind):
                raise UserError(f"{wanted.path}: is no file and no directory; name one")
            else:
                self._add_directory(root.resolve(), wanted)
        except OSError as error:
            raise UserError(f"{error.filename or wanted.path}: cannot be read ({error.strerror})") from None

    def _add_directory(self, root: Path, wanted: WantedPath) -> None:
        state = Home.default().root.resolve()  # has tokens and the files of other jobs
        if root in (Path.home().resolve(), Path("/"), state):
            raise UserError(
                f"{wanted.path}: is the whole of your home, of Starburst's or of the disk, which does not go "
                f"along; change to the directory of the job, or give {self.no_directory}"
            )
        for entry, below in _walk(root, wanted.ignore_files, leave_out=state):
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                self._vanished(entry.path)
                continue
            self._take(Path(entry.path), f"{wanted.target}/{below}", found)
            if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root):
                self.notes.append(
                    f"{below} is a link that leads out of {wanted.path}; what it names stays here"
                )

    def _take(self, path: Path, name: str, found: os.stat_result) -> None:
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            self.notes.append(f"{path} is no file, directory or link; left out")
            return
        size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        self.entries.append((path, name, size))
        self.size += size
        if self.size > MAX_BYTES or len(self.entries) > MAX_ENTRIES:
            raise self.too_large(f"more than {MAX_BYTES >> 20} MiB or {MAX_ENTRIES} files")

    def _vanished(self, path: str | Path) -> None:
        """Note a file that another program removed or renamed since its directory was listed."""
        self.notes.append(f"{path} was removed meanwhile; left out")

    def too_large(self, size: str) -> UserError:
        """The error that says what is large, and what to do."""
        made = [(each.label, "", sum(map(len, each.contents.values()))) for each in self.made]
        largest = sorted([*self.entries, *made], key=lambda entry: -entry[2])[:_NAMED]
        told = ", ".join(f"{path} ({-(-bytes_ // 1024)} KiB)" for path, _, bytes_ in largest)
        what = self.path or self.made[0].label
        most = f"at most {MAX_PACKED >> 10} KiB can go along with a job"
        return UserError(
            f"{what}: {size}; {most}; the largest are {told}: name what the job does not need in "
            f".starburstignore, put data on a volume or into the image, or give {self.no_directory}"
        )

    def archive(self) -> bytes:
        """The tar.gz: the same bytes for the same files, without their owners."""
        packed = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            listed, self.entries = self.entries, []
            for path, name, size in listed:
                try:
                    _pack(tar, path, name)
                    self.entries.append((path, name, size))
                except FileNotFoundError:
                    self._vanished(path)
                except OSError as error:
                    raise UserError(f"{path}: cannot be read ({error.strerror})") from None
            for made in self.made:
                for name, content in made.contents.items():
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
        return packed.getvalue()


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _pack(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add one entry without its owner; a file as long as it is when it is read, for it may be written to."""
    entry = tar.gettarinfo(path, name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(entry.mtime)
    content = path.read_bytes() if entry.isreg() else b""
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _walk(root: Path, names: Sequence[str], *, leave_out: Path) -> Iterator[tuple[os.DirEntry[str], str]]:
    """What lies in a directory and is not ignored, in order, each with its path below the root.

    A directory that was removed since its parent was listed is empty.
    """
    if _SKYIGNORE in names and (root / _SKYIGNORE).exists():  # as sky launch has it
        names = [name for name in names if name != _GITIGNORE]
    waiting = [("", _above(root, names))]
    while waiting:
        below, files = waiting.pop()
        here = root / below
        try:
            files = [*files, *_files_of(here, below, names)]
            with os.scandir(here) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        for entry in entries:
            path = f"{below}{entry.name}"
            is_directory = entry.is_dir(follow_symlinks=False)
            never = entry.name in _NEVER or entry.path == str(leave_out)
            if never or is_ignored(path, files, is_directory=is_directory):
                continue
            yield entry, path
            if is_directory:
                waiting.append((f"{path}/", files))


def _files_of(directory: Path, base: str, names: Sequence[str]) -> list[IgnoreFile]:
    there = (directory / name for name in names)
    return [IgnoreFile(base, read_patterns(_text(path))) for path in there if path.is_file()]


def _above(root: Path, names: Sequence[str]) -> list[IgnoreFile]:
    """The ignore files above a directory that is a part of a Git repository, the outermost first."""
    parents = [root, *root.parents]
    top = next((place for place, path in enumerate(parents) if (path / ".git").exists()), 0)
    return [
        IgnoreFile("", file.patterns, f"{root.relative_to(path)}/")
        for path in reversed(parents[1 : top + 1])
        for file in _files_of(path, "", names)
    ]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
