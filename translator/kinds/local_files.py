"""Files and variables of the machine from which a job is submitted, as far as a kind takes them along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class WantedPath:
    """A local file or directory, and where it is to lie in the archive."""

    path: str
    target: str
    #: Ignore files whose patterns leave files of a directory out.
    ignore_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MadeFiles:
    """Files that are made for the job, by their places in the archive; `label` names them to the user."""

    label: str
    contents: Mapping[str, bytes]


class LocalFiles(Protocol):
    """The machine that submits. A server, to which a text is sent, has none."""

    @property
    def reads(self) -> bool:
        """Whether there are files at all."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables of the submitting user."""

    @property
    def directory(self) -> str:
        """The directory that goes along with a command or a batch script; "" is none."""

    def packed(self, wanted: Sequence[WantedPath], made: Sequence[MadeFiles] = ()) -> bytes:
        """The paths and made files as one tar.gz archive, which the limits of a job bound."""


@dataclass(frozen=True, slots=True)
class NoLocalFiles:
    """A server: it reads texts only."""

    reads: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""

    def packed(self, wanted: Sequence[WantedPath], made: Sequence[MadeFiles] = ()) -> bytes:
        """Never called: a kind refuses paths where nothing is read."""
        raise NotImplementedError


NO_FILES = NoLocalFiles()
