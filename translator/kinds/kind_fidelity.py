"""The fidelity report of a document of another kind: what was lost when it was read as a Job, and later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from translator.errors import ManifestErrors
from translator.fidelity import FidelityLevel, FieldFidelity, Translation
from translator.field import Field
from translator.kinds.conversion import read_kind
from translator.kinds.read_kind import ReadKind
from translator.kinds.sky.task import is_task

_TICKS = "a task has no schedule; starburst submit makes a job at each tick"


@dataclass(frozen=True, slots=True)
class KindReading:
    """A document as the manifest to translate."""

    manifest: Mapping[str, Any]
    #: How it was read, if it is of another kind; SkyPilot tasks are not read, they are tasks already.
    kind: ReadKind | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Field) -> KindReading:
        """Read a document, which is a mapping.

        Raises:
            ManifestErrors: it is of a kind that is read, and invalid.
        """
        assert isinstance(document.value, dict)  # said above
        kind = None if is_task(document) else read_kind(document)
        if document.report.errors:
            raise ManifestErrors(document.report.errors)
        if kind is None:
            return cls(document.value)
        return cls(kind.manifest, kind, tuple(document.report.notes))

    def told(self, translation: Translation) -> Translation:
        """The translation with a report in the words of the document."""
        if self.kind is None:
            return translation
        noted = [note.partition(": ") for note in self.notes]
        lines = [FieldFidelity(path, FidelityLevel.APPROXIMATED, text) for path, _, text in noted]
        if self.kind.timing is not None:
            lines.append(FieldFidelity("spec.schedule", FidelityLevel.DROPPED, _TICKS))
        lines += [replace(line, field=self.kind.origin(line.field)) for line in translation.report]
        return Translation(translation.task, tuple(lines))
