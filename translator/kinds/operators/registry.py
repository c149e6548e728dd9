"""Which reader a kind of an operator has, by its name and API group."""

from __future__ import annotations

from collections.abc import Callable

from translator.field import Field, ManifestReport
from translator.kinds.operators.jobset import read_jobset
from translator.kinds.operators.mpi_job import read_mpi_job
from translator.kinds.operators.train_job import read_train_job
from translator.kinds.operators.training import KINDS, read_training_job
from translator.kinds.operators.volcano import is_volcano_job, read_volcano_job
from translator.kinds.operators.words import key_of
from translator.kinds.ray.ray_job import RAY_KINDS, read_ray_kind
from translator.kinds.read_kind import ReadKind
from translator.manifests.arrays import paths_of_fields

#: Domains of the labels and annotations that operators write on their pods.
_DOMAINS = (
    "jobset.sigs.k8s.io/",
    "ray.io/",
    "trainer.kubeflow.org/",
    "training.kubeflow.org/",
    "volcano.sh/",
)
_READERS: dict[tuple[str, str], Callable[[Field], ReadKind]] = {
    ("JobSet", "jobset.x-k8s.io"): read_jobset,
    ("MPIJob", "kubeflow.org"): read_mpi_job,
    ("TrainJob", "trainer.kubeflow.org"): read_train_job,
    **{(kind, "kubeflow.org"): read_training_job for kind in KINDS},
    **{(kind, "ray.io"): read_ray_kind for kind in RAY_KINDS},
}


def read_operator_kind(document: Field) -> ReadKind | None:
    """A document of an operator's kind as a Job; None if it is none that is read."""
    kind, version = document.at("kind").value, document.at("apiVersion").value
    if not isinstance(kind, str) or not isinstance(version, str):
        return None
    known = _READERS.get((kind, version.partition("/")[0]))
    reader = read_volcano_job if is_volcano_job(document) else known
    if reader is None:
        return None
    found = reader(document)
    _refuse_unwritten(found, document)
    return found


def _refuse_unwritten(found: ReadKind, document: Field) -> None:
    """Refuse what is left of variables and files that read what operators write on pods."""
    report = ManifestReport("", 0)  # what is no list is refused when the Job is read
    template = Field(found.manifest, "", report).at("spec").at("template")
    for path in paths_of_fields(template.at("spec")):
        key = key_of(path.value)
        own = (template.at("metadata").at(kind).at(key).value for kind in ("labels", "annotations"))
        if key.startswith(_DOMAINS) and not any(own):
            Field(path.value, found.origin(path.path), document.report).refuse(
                "is written by the operator on its own pods, and not known here; remove it, or read "
                "$STARBURST_RANK, the number of the task from 0"
            )
