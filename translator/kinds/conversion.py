"""Texts that are no Kubernetes manifests as manifests: batch scripts, and SkyPilot tasks among documents."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from translator.errors import ManifestErrors
from translator.field import Field, ManifestReport
from translator.intake.kinds import TASK_KEYS
from translator.kinds.command_job import CommandJob
from translator.kinds.cron_job import is_cron_job, read_cron_job
from translator.kinds.local_files import NO_FILES, LocalFiles
from translator.kinds.operators.registry import read_operator_kind
from translator.kinds.overrides import NONE, Overrides
from translator.kinds.prelude import Prelude
from translator.kinds.ray.launch import on_ray
from translator.kinds.read_kind import ReadKind
from translator.kinds.sbatch.directives import is_batch_script, read_script
from translator.kinds.sbatch.script import SbatchReader
from translator.kinds.sky.scalars import TaskLoader
from translator.kinds.sky.task import is_task, read_task
from translator.kinds.workdir import with_directory
from translator.manifests.documents import Chunk, chunks, load

#: A line that a SkyPilot task has and no manifest; it spares most texts a second reading.
_TASK_LINE = re.compile(rf"^(?:{'|'.join(sorted(TASK_KEYS))})[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ConvertedText:
    """A text in which every document is a Kubernetes manifest."""

    text: str
    #: What was not kept of each job that was no manifest, by its name.
    notes: Mapping[str, tuple[str, ...]]


def load_document(chunk: Chunk, source: str, document: int) -> object:
    """The value of one document: of a SkyPilot task with its own scalars, else with those of manifests.

    Raises:
        ManifestErrors: as `load`.
    """
    value = load(chunk, source, document)
    if not is_task(Field(value, "", ManifestReport(source, document))):
        return value
    return load(chunk, source, document, TaskLoader)


def command_manifest(
    command: Sequence[str], name: str, local: LocalFiles, overrides: Overrides, *, ray: bool = False
) -> dict[str, Any]:
    """The manifest of a command with its directory; `name` is its job's unless the overrides name it.

    `ray`: a Ray of its own is started on all of its tasks, and the command runs in the first.
    """
    prelude = with_directory(Prelude(), local)
    hints = {"array": overrides.array} if overrides.array else {}
    job = overrides.applied(CommandJob(name=name, command=tuple(command), env=prelude.env, hints=hints))
    if ray:
        return on_ray(job, prelude).manifest()
    return replace(job, command=prelude.wrap(job.command)).manifest()


def script_manifest(
    text: str, report: ManifestReport, local: LocalFiles = NO_FILES, overrides: Overrides = NONE
) -> dict[str, Any]:
    """The manifest of a batch script; problems and notes go to the report.

    Raises:
        ManifestErrors: a directive cannot be taken apart.
    """
    return SbatchReader(read_script(text, report.source), report).job(local, overrides).manifest()


def task_manifest(task: Field, local: LocalFiles = NO_FILES, overrides: Overrides = NONE) -> dict[str, Any]:
    """The manifest of a SkyPilot task; problems and notes go to its report."""
    return read_task(task, local, overrides).manifest()


def read_kind(document: Field) -> ReadKind | None:
    """A document of another kind as a Job; None if it is none that is known. Problems go to its report."""
    if is_task(document):
        return ReadKind(task_manifest(document))
    if is_cron_job(document):
        return read_cron_job(document)
    return read_operator_kind(document)


def converted(text: str, source: str, local: LocalFiles, overrides: Overrides) -> ConvertedText | None:
    """A text with manifests in place of its batch script or tasks; None if it has manifests only.

    Raises:
        ManifestErrors: a script or task is invalid.
    """
    if is_batch_script(text):
        report = ManifestReport(source, 0)
        return _joined([script_manifest(text, report, local, overrides)], [report])
    if not _TASK_LINE.search(text):
        return None
    reports, manifests = list[ManifestReport](), list[Any]()
    for index, chunk in enumerate(chunks(text), 1):
        document = Field(load_document(chunk, source, index), "", ManifestReport(source, index))
        reports.append(document.report)
        manifests.append(task_manifest(document, local, overrides) if is_task(document) else document.value)
    return _joined(manifests, reports)


def _joined(manifests: Sequence[Any], reports: Sequence[ManifestReport]) -> ConvertedText:
    errors = [error for report in reports for error in report.errors]
    if errors:
        raise ManifestErrors(errors)
    notes = {
        manifest["metadata"]["name"]: tuple(report.notes)
        for manifest, report in zip(manifests, reports, strict=True)
        if report.notes
    }
    return ConvertedText("\n---\n".join(json.dumps(each, ensure_ascii=False) for each in manifests), notes)
