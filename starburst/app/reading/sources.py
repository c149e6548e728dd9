"""A manifest file as text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManifestText:
    """The text of a manifest file and its name for errors, or the problem of reading it."""

    name: str
    text: str = ""
    problem: str = ""
