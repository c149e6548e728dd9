"""What a document of another kind comes to: the batch/v1 Job that does the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from starburst.domain.cron_timing import CronTiming
from starburst.domain.job import Job
from starburst.domain.resources import Resources
from translator.errors import ManifestError
from translator.field import ManifestReport


@dataclass(frozen=True, slots=True)
class ReadKind:
    """A Job that stands for a document of another kind."""

    manifest: dict[str, Any]
    #: Where parts of the Job are in the document: paths of the one by paths of the other.
    origins: Mapping[str, str] = field(default_factory=dict)
    #: What each task asks for, by rank, where tasks differ; () if all ask for what the Job says.
    tasks: tuple[Resources, ...] = ()
    #: When it is submitted again and again; None: once.
    timing: CronTiming | None = None

    def in_its_words(self, report: ManifestReport) -> None:
        """Change the paths of problems and notes on the Job into those of the document."""
        report.errors[:] = [
            ManifestError(each.source, each.document, self.origin(each.field), each.value, each.mend)
            for each in report.errors
        ]
        report.notes[:] = [self.origin(note) for note in report.notes]
        report.stays[:] = [replace(each, field=self.origin(each.field)) for each in report.stays]

    def with_tasks(self, job: Job) -> Job:
        """The job that the Job was read as, with what each of its tasks asks for."""
        if not self.tasks:
            return job
        kind = max(task.gpu_type for task in job.tasks)
        return replace(
            job, tasks=tuple(replace(task, gpu_type=kind if task.gpus else "") for task in self.tasks)
        )

    def origin(self, path: str) -> str:
        """A path, or a text that begins with one, with the document's own."""
        for begin in sorted(self.origins, key=len, reverse=True):
            if path.startswith(begin) and path[len(begin) :][:1] in ("", ".", "[", ":"):
                return self.origins[begin] + path[len(begin) :]
        return path
