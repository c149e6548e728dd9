"""The fidelity report of a document of another kind: what was lost when it was read as a Job, and later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from translator.errors import ManifestErrors
from translator.fidelity import FidelityLevel, FieldFidelity, Translation
from translator.field import Field, ManifestReport
from translator.kinds.conversion import read_kind, script_manifest
from translator.kinds.read_kind import ReadKind
from translator.kinds.sky.task import is_task, without_files
from translator.manifests.hints import PREFIX

_TICKS = "a task has no schedule; starburst submit makes a job at each tick"
_CONTAINER = "spec.template.spec.containers[0]"
#: Where the parts of a script's Job are in the script.
_OF_SCRIPT = {
    "metadata.name": "--job-name",
    f'metadata.annotations["{PREFIX}after-any"]': "--dependency",
    f'metadata.annotations["{PREFIX}after-not-ok"]': "--dependency",
    f'metadata.annotations["{PREFIX}after-ok"]': "--dependency",
    f'metadata.annotations["{PREFIX}after-start"]': "--dependency",
    f'metadata.annotations["{PREFIX}array"]': "--array",
    f'metadata.annotations["{PREFIX}gpu-type"]': "--gpus",
    f'metadata.annotations["{PREFIX}hold"]': "--hold",
    f'metadata.annotations["{PREFIX}singleton"]': "--dependency",
    "spec.activeDeadlineSeconds": "--time",
    "spec.completionMode": "--nodes",
    "spec.completions": "--nodes",
    "spec.parallelism": "--nodes",
    f"{_CONTAINER}.command": "script",
    f"{_CONTAINER}.env": "--export",
    f"{_CONTAINER}.image": "--container-image",
    f"{_CONTAINER}.resources": "--gpus, --cpus-per-task, --mem",
    f"{_CONTAINER}.workingDir": "--chdir",
}

#: Where the parts of a SkyPilot task's Job are in the task.
_OF_TASK = {
    "metadata.name": "name",
    f'metadata.annotations["{PREFIX}cloud"]': "resources.infra",
    f'metadata.annotations["{PREFIX}disk-size"]': "resources.disk_size",
    f'metadata.annotations["{PREFIX}gpu-type"]': "resources.accelerators",
    f'metadata.annotations["{PREFIX}infra"]': "resources.infra",
    f'metadata.annotations["{PREFIX}max-hourly-cost"]': "resources.max_hourly_cost",
    f'metadata.annotations["{PREFIX}priority"]': "resources.priority",
    f'metadata.annotations["{PREFIX}retries"]': "resources.job_recovery",
    f'metadata.annotations["{PREFIX}use-spot"]': "resources.use_spot",
    "spec.completionMode": "num_nodes",
    "spec.completions": "num_nodes",
    "spec.parallelism": "num_nodes",
    f"{_CONTAINER}.command": "run",
    f"{_CONTAINER}.env": "envs",
    f"{_CONTAINER}.image": "resources.image_id",
    f"{_CONTAINER}.resources": "resources",
}


@dataclass(frozen=True, slots=True)
class KindReading:
    """A document as the manifest to translate."""

    manifest: Mapping[str, Any]
    #: How it was read, if it is of another kind.
    kind: ReadKind | None = None
    notes: tuple[str, ...] = ()
    #: Names of variables that are secrets.
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Field) -> KindReading:
        """Read a document, which is a mapping; of a SkyPilot task without the files that submit takes along.

        Raises:
            ManifestErrors: it is of a kind that is read, and invalid.
        """
        assert isinstance(document.value, dict)  # said above
        of_task = is_task(document)
        kind = read_kind(without_files(document) if of_task else document)
        if document.report.errors:
            raise ManifestErrors(document.report.errors)
        if kind is None:
            return cls(document.value)
        if of_task:
            kind = replace(kind, origins=_OF_TASK)
        secrets = tuple(document.at("secrets").entries()) if of_task else ()
        return cls(kind.manifest, kind, tuple(document.report.notes), secrets)

    @classmethod
    def of_script(cls, text: str, source: str) -> KindReading:
        """Read a batch script, without the directory that starburst submit takes along.

        Raises:
            ManifestErrors: it is invalid.
        """
        report = ManifestReport(source, 0)
        manifest = script_manifest(text, report)
        if report.errors:
            raise ManifestErrors(report.errors)
        return cls(manifest, ReadKind(manifest, _OF_SCRIPT), tuple(report.notes))

    def told(self, translation: Translation) -> Translation:
        """The translation with a report in the words of the document."""
        if self.kind is None:
            return translation
        noted = [note.partition(": ") for note in self.notes]
        lines = [
            FieldFidelity(path if text else "script", FidelityLevel.APPROXIMATED, text or path)
            for path, _, text in noted
        ]
        if self.kind.timing is not None:
            lines.append(FieldFidelity("spec.schedule", FidelityLevel.DROPPED, _TICKS))
        lines += [replace(line, field=self.kind.origin(line.field)) for line in translation.report]
        return Translation(self._with_secrets(translation.task), tuple(lines))

    def _with_secrets(self, task: dict[str, Any]) -> dict[str, Any]:
        """The task with its secrets where SkyPilot has them."""
        envs = task.get("envs", {})
        secrets = {name: envs[name] for name in self.secrets if name in envs}
        if not secrets:
            return task
        rest = {name: value for name, value in envs.items() if name not in secrets}
        others = {key: value for key, value in task.items() if key != "envs"}
        return {
            **others,
            **({"envs": rest} if rest else {}),
            "secrets": {**task.get("secrets", {}), **secrets},
        }
