"""Reads texts of YAML documents as submissions: all jobs of a text, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from starburst.domain.array import members
from starburst.domain.job import Submission
from translator.errors import ManifestError, ManifestErrors
from translator.field import Field, Fields, ManifestReport
from translator.intake.kinds import LISTS, TAKEN, Companion, companion, has_kind, with_kind
from translator.intake.rules import EMBEDDED, IntakeRules
from translator.kinds.conversion import load_document, read_kind, script_manifest
from translator.kinds.cron_job import as_cron_job
from translator.kinds.read_kind import ReadKind
from translator.kinds.sbatch.directives import is_batch_script
from translator.manifests.documents import chunks, load
from translator.manifests.live_object import as_submitted
from translator.manifests.manifest import submission

_LIST = Fields("a List", read=("apiVersion", "kind", "items"), harmless=("metadata",))
#: How the note begins that names documents that are no jobs.
PASSED_OVER = "not a job and passed over"
#: Companions named in a note.
MAX_NAMED = 8
#: Largest number of documents per text.
MAX_DOCUMENTS = 10_000


def read_manifests(
    text: str,
    source: str,
    *,
    suffix: Callable[[], str],
    user: str = "",
    taking: IntakeRules = EMBEDDED,
) -> list[Submission]:
    """The submissions in a text of one or more YAML documents; empty documents are skipped.

    `source` names the text in errors; `suffix` draws five lower-case letters or digits for each id.

    Raises:
        ManifestErrors: a manifest is invalid; contains all problems of the text.
    """
    found = read_firsts(text, source, suffix=suffix, user=user, taking=taking)
    return [item for first in found for item in members(first)]


def read_firsts(
    text: str,
    source: str,
    *,
    suffix: Callable[[], str],
    user: str = "",
    taking: IntakeRules = EMBEDDED,
) -> list[Submission]:
    """As `read_manifests`, but with each array as a whole."""
    found = _Found(suffix, user)
    if is_batch_script(text):
        found.take_script(text, taking.report(source, 0))
    parts = [] if is_batch_script(text) else chunks(text)
    if len(parts) > MAX_DOCUMENTS:
        raise ManifestErrors(
            [ManifestError(source, 0, "", None, f"has more than {MAX_DOCUMENTS} documents; split it up")]
        )
    for index, chunk in enumerate(parts, 1):
        try:
            for manifest in _manifests(load_document(chunk, source, index), taking.report(source, index)):
                found.take(manifest)
        except ManifestErrors as bad:
            found.errors += bad.errors
    if found.errors:
        raise ManifestErrors(found.errors)
    return found.with_companions_named()


def companions_in(text: str, source: str) -> list[Companion]:
    """The documents of a text that are no jobs, in order.

    Raises:
        ManifestErrors: the text is no YAML.
    """
    found: list[Companion] = []
    for index, chunk in enumerate(chunks(text), 1):
        report = EMBEDDED.report(source, index)
        found += filter(None, map(companion, _manifests(load(chunk, source, index), report)))
    return found


@dataclass(slots=True)
class _Found:
    """What the documents of a text come to."""

    suffix: Callable[[], str]
    user: str
    submissions: list[Submission] = field(default_factory=list)
    companions: list[tuple[Companion, Field]] = field(default_factory=list)
    errors: list[ManifestError] = field(default_factory=list)

    def take(self, manifest: Field) -> None:
        """Sort in one document or item of a list."""
        reading = replace(manifest, report=_fresh(manifest.report))
        kind = read_kind(reading)
        if kind is not None:
            self._take_job(kind, reading.report, manifest.report)
            return
        beside = companion(manifest)
        if beside is not None:
            self.companions.append((beside, manifest))
            return
        if has_kind(manifest):
            self.submissions.append(submission(_unstored(manifest), self.suffix, self.user))
        self.errors += manifest.report.errors

    def take_script(self, text: str, report: ManifestReport) -> None:
        """Sort in a batch script."""
        reading = _fresh(report)
        self._take_job(ReadKind(script_manifest(text, reading)), reading, report)

    def _take_job(self, kind: ReadKind, reading: ManifestReport, report: ManifestReport) -> None:
        """Sort in a Job that something else was read as, with the notes and errors of that reading."""
        if reading.errors:
            self.errors += reading.errors
            return
        found = submission(Field(kind.manifest, "", report), self.suffix, self.user)
        kind.in_its_words(report)
        self.errors += report.errors
        found = replace(found, job=kind.with_tasks(found.job), notes=(*reading.notes, *report.notes))
        self.submissions.append(found if kind.timing is None else as_cron_job(found, kind.timing))

    def with_companions_named(self) -> list[Submission]:
        """The submissions; a note of the first names the documents that are no jobs.

        Raises:
            ManifestErrors: there are only such documents.
        """
        if not self.companions:
            return self.submissions
        if not self.submissions:
            for beside, manifest in self.companions:
                manifest.at("kind").refuse(
                    f"{beside}: is no job; apply it with kubectl apply -f; {TAKEN}", show=False
                )
            raise ManifestErrors([error for _, each in self.companions for error in each.report.errors])
        names = ", ".join(str(beside) for beside, _ in self.companions[:MAX_NAMED])
        more = len(self.companions) - MAX_NAMED
        told = f"{names} and {more} more" if more > 0 else names
        first, *others = self.submissions
        note = f"{PASSED_OVER}: {told}; apply them with kubectl apply -f, or give --apply-rest"
        return [replace(first, notes=(*first.notes, note)), *others]


def _manifests(value: object, report: ManifestReport) -> list[Field]:
    """The manifests of a document: itself, or the items of a List, each with its own report."""
    document = Field(value, "", report)
    if value is None:
        return []
    kind = document.at("kind").value
    if not isinstance(kind, str) or kind not in LISTS:
        return [document]
    document.check(_LIST)
    items = document.at("items").items()
    if document.report.errors:
        raise ManifestErrors(document.report.errors)
    return [replace(item, value=with_kind(item.value, LISTS[kind]), report=_fresh(report)) for item in items]


def _fresh(report: ManifestReport) -> ManifestReport:
    """An empty report under the same conditions."""
    return replace(report, errors=[], notes=[], stays=[])


def _unstored(manifest: Field) -> Field:
    """A manifest without the fields that an API server has added, if it is a copy of a stored object."""
    value: Any = manifest.value
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("uid"):
        return manifest
    cleaned = as_submitted(value)
    if manifest.at("spec").at("suspend").value is True:
        cleaned["spec"]["suspend"] = True
    return replace(manifest, value=cleaned)
