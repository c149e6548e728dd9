"""The parts of a Job or Pod that are translated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from translator.field import Field, ManifestReport
from translator.manifests.live_object import as_submitted


@dataclass(frozen=True, slots=True)
class ManifestParts:
    """The parts of a manifest; `job` is absent if it is a Pod."""

    root: Field
    metadata: Field
    job: Field
    template: Field
    spec: Field
    container: Field

    @property
    def names_pods(self) -> bool:
        """Whether Kubernetes generates the names of the pods."""
        return self.job.value is not None or self.metadata.at("name").value is None

    @property
    def indexed(self) -> bool:
        """Whether the pods have completion indices."""
        return self.job.at("completionMode").value == "Indexed"


def split_manifest(manifest: Mapping[str, Any]) -> ManifestParts:
    """The parts of a manifest, without the fields that the API server added.

    A missing part is an absent field; errors of form are recorded in the report of `root`.
    """
    metadata = manifest.get("metadata")
    stored = isinstance(metadata, dict) and metadata.get("uid")
    root = Field(
        as_submitted(manifest) if stored else dict(manifest),
        "",
        ManifestReport("", 0, native=True, leaves=False),
    )
    root.report.namespace = root.at("metadata").at("namespace").text() or ""
    spec = root.at("spec")
    of_job = root.at("kind").value == "Job"
    template = spec.at("template") if of_job else root
    pod_spec = template.at("spec")
    containers = pod_spec.at("containers")
    first = containers.items()[0] if isinstance(containers.value, list) and containers.value else containers
    absent = Field(None, "spec", root.report)
    return ManifestParts(root, root.at("metadata"), spec if of_job else absent, template, pod_spec, first)
