"""A hint on a part of an operator's kind, such as `starburst.io/cloud: never`: refused wherever it stands."""

from __future__ import annotations

import pytest

from tests.translator.kinds.test_operators import example, problems, read

HINT = {"annotations": {"starburst.io/cloud": "never"}}


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("jobset.yaml", "spec.replicatedJobs[0].template"),
        ("jobset.yaml", "spec.replicatedJobs[1].template.spec.template"),
        ("pytorch-job.yaml", "spec.pytorchReplicaSpecs.Master.template"),
        ("pytorch-job.yaml", "spec.pytorchReplicaSpecs.Worker.template"),
        ("mpi-job.yaml", "spec.mpiReplicaSpecs.Launcher.template"),
        ("mpi-job.yaml", "spec.mpiReplicaSpecs.Worker.template"),
        ("ray-job.yaml", "spec.rayClusterSpec.headGroupSpec.template"),
        ("ray-job.yaml", "spec.rayClusterSpec.workerGroupSpecs[0].template"),
        ("volcano-job.yaml", "spec.tasks[0].template"),
        ("volcano-job.yaml", "spec.tasks[1].template"),
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_a_hint_on_a_part_is_refused_and_not_lost(file: str, path: str, native: bool) -> None:
    document = example(file)
    place = document
    for key in path.replace("[", ".").replace("]", "").split("."):
        place = place[int(key) if isinstance(place, list) else key]
    place["metadata"] = HINT
    found = problems(document, native=native)
    assert found == [
        f'{path}.metadata.annotations["starburst.io/cloud"]: "never": '
        "is not read from a template; move it to the manifest's own metadata"
    ]


def test_labels_of_one_role_are_noted_also_where_the_first_has_none() -> None:
    document = example("pytorch-job.yaml")
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    worker["metadata"] = {"labels": {"team": "vision"}}
    note = (
        "spec.pytorchReplicaSpecs.Worker.template.metadata.labels: is not used: all tasks have that of Master"
    )
    assert note in read(document).notes
