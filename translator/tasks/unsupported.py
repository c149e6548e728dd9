"""What is left of a manifest once a task is made of it: each field gets its line in the report."""

from __future__ import annotations

from starburst.domain.job import CloudChoice
from translator.fidelity import Fidelity
from translator.field import ONLY_THE_CLUSTER
from translator.manifests.hints import MACHINE_KEYS, PREFIX, JobHints
from translator.tasks import untranslated
from translator.tasks.manifest_parts import ManifestParts

#: Wishes for the machine, which become its `resources`.
_READ_ELSEWHERE = frozenset(PREFIX + key for key in MACHINE_KEYS if key != "runtime")


def judge_leftovers(parts: ManifestParts, hints: JobHints, fidelity: Fidelity) -> None:
    """Put a line for everything that no code translates."""
    untranslated.METADATA.judge(parts.metadata, fidelity)
    untranslated.JOB_SPEC.judge(parts.job, fidelity)
    untranslated.POD_SPEC.judge(parts.spec, fidelity)
    untranslated.CONTAINER.judge(parts.container, fidelity)
    _judge_metadata(parts, hints, fidelity)
    for kind, what in (("initContainers", "the init container"), ("containers", "the container")):
        for other in parts.spec.at(kind).items():
            if other.path != parts.container.path:
                name = other.at("name").value or "without a name"
                fidelity.refused(other, f"{what} {name} does not go along; {ONLY_THE_CLUSTER}")
    for security in (parts.spec.at("securityContext"), parts.container.at("securityContext")):
        if security.at("privileged").value:
            mend = f"SkyPilot runs no privileged containers; {ONLY_THE_CLUSTER}"
            fidelity.refused(security.at("privileged"), mend)
        if security.entries().keys() - {"privileged"}:
            fidelity.dropped(security, "the command runs as the user that SkyPilot finds in the image")
    if parts.spec.at("os").at("name").value == "windows":
        fidelity.refused(parts.spec.at("os"), f"rented machines run Linux; {ONLY_THE_CLUSTER}")
    elif parts.spec.at("os").value:
        fidelity.kept(parts.spec.at("os"), "rented machines run Linux")
    runtime = parts.spec.at("runtimeClassName")
    if runtime.value == "nvidia":
        fidelity.kept(runtime, "machines with GPUs have NVIDIA's runtime")
    elif runtime.value:
        fidelity.dropped(runtime, "the machine's own container runtime is used")


def _judge_metadata(parts: ManifestParts, hints: JobHints, fidelity: Fidelity) -> None:
    """The namespace, the annotations, and what is said of pods alone."""
    if parts.metadata.at("namespace").value:
        fidelity.dropped(parts.metadata.at("namespace"), "a cloud has none; Secrets are looked up in it")
    for kind in ("labels", "annotations"):
        for key, note in parts.metadata.at(kind).entries().items():
            if key == f"{PREFIX}cloud" and hints.cloud is CloudChoice.NEVER:
                fidelity.refused(note, "this job does not leave the cluster")
            elif key in _READ_ELSEWHERE:
                continue
            elif key.startswith(PREFIX):
                fidelity.kept(note, "is read by Starburst")
            elif kind == "annotations":
                fidelity.dropped(note, "is for software of the cluster")
    if parts.template is not parts.root:
        for field in parts.template.at("metadata").entries().values():
            if field.value:
                fidelity.dropped(field, "is of pods, and there are none")
