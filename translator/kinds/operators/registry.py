"""Which reader a kind of an operator has, by its name and API group."""

from __future__ import annotations

from collections.abc import Callable

from translator.field import Field
from translator.kinds.operators.jobset import read_jobset
from translator.kinds.operators.mpi_job import read_mpi_job
from translator.kinds.operators.train_job import read_train_job
from translator.kinds.operators.training import KINDS, read_training_job
from translator.kinds.operators.volcano import is_volcano_job, read_volcano_job
from translator.kinds.ray.ray_job import RAY_KINDS, read_ray_kind
from translator.kinds.read_kind import ReadKind

_READERS: dict[tuple[str, str], Callable[[Field], ReadKind]] = {
    ("JobSet", "jobset.x-k8s.io"): read_jobset,
    ("MPIJob", "kubeflow.org"): read_mpi_job,
    ("TrainJob", "trainer.kubeflow.org"): read_train_job,
    **{(kind, "kubeflow.org"): read_training_job for kind in KINDS},
    **{(kind, "ray.io"): read_ray_kind for kind in RAY_KINDS},
}


def read_operator_kind(document: Field) -> ReadKind | None:
    """A document of an operator's kind as a Job; None if it is none that is read."""
    if is_volcano_job(document):
        return read_volcano_job(document)
    kind, version = document.at("kind").value, document.at("apiVersion").value
    if not isinstance(kind, str) or not isinstance(version, str):
        return None
    reader = _READERS.get((kind, version.partition("/")[0]))
    return None if reader is None else reader(document)
