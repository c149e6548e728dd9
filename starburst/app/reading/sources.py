"""Texts of manifests on their way in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManifestText:
    """A text of manifests, and what it is called in errors; or why it could not be read, as a line."""

    name: str
    text: str = ""
    problem: str = ""
