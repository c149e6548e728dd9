"""What programs of operators' kinds name of their operator: Services, files, a place to meet, variables."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.translator.kinds.test_operators import example, outputs, problems, read, replicas, shell, training


def test_tasks_meet_where_the_policy_says_if_that_is_a_service_of_its_own() -> None:
    document = training(Worker=replicas(2, shell("echo $PET_RDZV_BACKEND $PET_RDZV_ENDPOINT $PET_RDZV_CONF")))
    policy = {"rdzvBackend": "etcd-v2", "rdzvHost": "etcd", "rdzvPort": 2379}
    policy["rdzvConf"] = [{"key": "timeout", "value": "600"}, {"key": "ttl", "value": "5"}]
    document["spec"]["elasticPolicy"] = policy
    found = read(document)
    assert outputs(found) == ["etcd-v2 etcd:2379 timeout=600,ttl=5"] * 2
    assert any(note.startswith("spec.elasticPolicy.rdzvHost: must be reached") for note in found.notes)
    del policy["rdzvHost"]
    assert problems(document)[0].startswith("spec.elasticPolicy.rdzvHost: is missing; ")
    policy |= {"rdzvBackend": "c10d", "rdzvHost": "train-worker-0"}
    assert outputs(read(document)) == ["c10d 10.0.0.1:2000 timeout=600,ttl=5"] * 2


def test_names_of_the_operators_services_become_addresses() -> None:
    master = "train-master-0.default.svc.cluster.local"
    told = f"echo train-worker-1:29500 {master} /logs/train-worker-1 train-worker-9"
    document = training(
        Master=replicas(1, shell(told)),
        Worker=replicas(
            2,
            shell(
                f"{told} $A",
            ),
        ),
    )
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["env"] = [{"name": "A", "value": "tcp://train-worker-0:1"}]
    line = "10.0.0.3:29500 10.0.0.1 /logs/train-worker-1 train-worker-9"
    assert outputs(read(document)) == [f"{line}", *[f"{line} tcp://10.0.0.2:1"] * 2]


@pytest.mark.parametrize("where", ["args", "env"])
def test_a_name_that_no_shell_fills_in_is_in_no_task(where: str) -> None:
    """A program that is left to the image, and a container beside it, have no shell before them."""
    named: Any = {"args": ["--to=train-worker-0"], "env": [{"name": "TO", "value": "train-worker-0"}]}[where]
    (line,) = problems(training(Worker=replicas(2, None, **{where: named})))
    assert "template.spec.containers[0].command: is missing; write out the program of the image" in line
    document = training(Worker=replicas(2, shell("true")))
    beside = {"name": "side", "image": "me/side", "command": ["side"], where: named}
    document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].append(beside)
    text = read(document, native=True).workload.manifest
    assert text is not None
    assert "starburst_host_0" not in text
    assert r"\u0000" not in text


def of_pod(key: str) -> list[dict[str, Any]]:
    """A variable that reads a label of its pod."""
    return [{"name": "READ", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}}]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("training.kubeflow.org/replica-index", ["0", "0", "1"]),
        ("training.kubeflow.org/replica-type", ["master", "worker", "worker"]),
        ("training.kubeflow.org/job-name", ["train"] * 3),
        ("volcano.sh/task-index", ["0", "0", "1"]),
        ("volcano.sh/task-spec", ["boss", "work", "work"]),
        ("jobset.sigs.k8s.io/job-index", ["0", "0", "1"]),
        ("jobset.sigs.k8s.io/job-global-index", ["0", "1", "2"]),
        ("jobset.sigs.k8s.io/global-replicas", ["3"] * 3),
    ],
)
def test_a_variable_of_what_the_operator_writes_on_a_pod_has_its_value(key: str, values: list[str]) -> None:
    """As RANK from volcano.sh/task-index; on pods of Starburst's own nobody writes it, and it was empty."""
    one, two = (replicas(count, shell("echo $READ"), env=of_pod(key)) for count in (1, 2))
    template = {"template": one["template"]}
    jobs = [{"name": f"j{at}", "replicas": at, "template": {"spec": template}} for at in (1, 2)]
    document: dict[str, Any] = {
        "training": training(Master=one, Worker=two),
        "volcano": {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "v"},
            "spec": {"tasks": [{"name": "boss", **one}, {"name": "work", **two}]},
        },
        "jobset": {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "s"},
            "spec": {"replicatedJobs": jobs},
        },
    }[key.partition(".")[0]]
    if "tasks" in document["spec"]:
        for task in document["spec"]["tasks"]:
            del task["restartPolicy"]
    assert outputs(read(document, native=True)) == values


def test_a_container_beside_reads_what_takes_no_shell() -> None:
    def lines(key: str) -> list[str]:
        document = training(Worker=replicas(2, shell("true")))
        beside = {"name": "side", "image": "me/side", "command": ["side"], "env": of_pod(key)}
        document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].append(beside)
        return problems(document, native=True)

    assert not lines("training.kubeflow.org/job-name")
    (line,) = lines("training.kubeflow.org/replica-index")
    assert "containers[1].env[0].valueFrom.fieldRef.fieldPath" in line


def test_a_jobset_of_one_pod_reads_its_indexes() -> None:
    keys = ("jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-completion-index")
    for key in keys:
        template = {"template": replicas(1, shell("echo $READ"), env=of_pod(key))["template"]}
        spec = {"replicatedJobs": [{"name": "j", "template": {"spec": template}}]}
        document: dict[str, Any] = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
        found = read({**document, "metadata": {"name": "s"}, "spec": spec}, native=True)
        ran = subprocess.run(found.workload.command, capture_output=True, text=True, timeout=60, check=True)
        assert ran.stdout == "0\n"


@pytest.mark.parametrize("key", ["training.kubeflow.org/operator-name", "ray.io/cluster"])
def test_a_variable_of_what_an_operator_alone_knows_is_refused(key: str) -> None:
    (line,) = problems(training(Worker=replicas(2, shell("true"), env=of_pod(key))), native=True)
    assert line.startswith(
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: "
    )
    assert "is written by the operator on its own pods, and not known here" in line
    own = training(Worker=replicas(2, shell("true"), env=of_pod(key)))
    own["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = {"labels": {key: "mine"}}
    assert not problems(own, native=True)


def test_there_is_one_master() -> None:
    (line,) = problems(training(Master=replicas(2, shell("true"))))
    assert line == "spec.pytorchReplicaSpecs.Master.replicas: 2: must be at most 1"


def test_volumes_in_another_order_are_the_same() -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/data"}}]
    roles = [replicas(1, shell("true")), replicas(1, shell("false"))]
    for role, own in zip(roles, (volumes, volumes[::-1]), strict=True):
        role["template"]["spec"]["volumes"] = own
    assert not problems(training(Master=roles[0], Worker=roles[1]), native=True)


def test_a_variable_that_cannot_be_kept_is_named_by_its_place_in_the_document() -> None:
    env = [
        {"name": "ROLE", "value": "x"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    ]
    worker = [{**env[0], "value": "z"}, env[1]]
    document = training(Master=replicas(1, shell("a"), env=env), Worker=replicas(1, shell("a"), env=worker))
    (line,) = problems(document)
    assert line.startswith("spec.pytorchReplicaSpecs.Master.template.spec.containers[0].env[1].valueFrom: ")


def test_the_files_and_names_of_volcanos_services_are_there_for_programs() -> None:
    document = example("volcano-job.yaml")
    name = document["metadata"]["name"]
    for task in document["spec"]["tasks"]:
        told = f"cat /etc/volcano/worker.host; echo {name}-worker-1.{name}:22 {name}-worker-1"
        task["template"]["spec"]["containers"][0]["command"] = shell(told)
    told = f"10.0.0.2\n10.0.0.3\n10.0.0.3:22 {name}-worker-1"
    assert outputs(read(document)) == [told] * 3


@pytest.mark.parametrize(
    ("file", "parts"), [("jobset.yaml", "replicatedJobs"), ("volcano-job.yaml", "tasks")]
)
def test_a_name_is_of_one_part_only_and_of_a_labels_letters(file: str, parts: str) -> None:
    document = example(file)
    first, second = document["spec"][parts][:2]
    second["name"] = first["name"]
    (line,) = problems(document)
    assert line == (
        f'spec.{parts}[1].name: "{first["name"]}": is the name of spec.{parts}[0] too; '
        "give each a name of its own"
    )
    second["name"] = first["name"].upper()
    document["spec"].pop("successPolicy", None)
    (line,) = problems(document)
    assert line.startswith(f'spec.{parts}[1].name: "{second["name"]}": names have lower-case letters')


def test_tasks_of_a_volcano_job_without_names_have_those_that_volcano_gives() -> None:
    document = example("volcano-job.yaml")
    for task in document["spec"]["tasks"]:
        task.pop("name")
        task["template"]["spec"]["containers"][0]["command"] = shell("echo $VC_DEFAULT1_HOSTS")
    assert outputs(read(document)) == ["10.0.0.2,10.0.0.3"] * 3


def test_a_jobset_that_wants_a_part_of_the_cluster_for_each_job_is_told() -> None:
    document = example("jobset.yaml")
    document["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    assert any("exclusive-topology" in note and "spread: node" in note for note in read(document).notes)


def test_a_limit_of_retries_counts_without_a_restart_policy() -> None:
    document = training(Master=replicas(1, shell("true"), policy=None))
    document["spec"]["runPolicy"] = {"backoffLimit": 3}
    assert read(document).job.retries == 3
    document["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = "Never"
    assert read(document).job.retries == 0


def test_how_many_pods_of_a_volcano_task_would_do_is_noted() -> None:
    document = example("volcano-job.yaml")
    document["spec"]["tasks"][1]["minAvailable"] = 1
    assert any(note.startswith("spec.tasks[1].minAvailable: all 2 of them") for note in read(document).notes)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("ray-job.yaml", "rayClusterSpec headGroupSpec template spec containers", []),
        ("ray-job.yaml", "rayClusterSpec workerGroupSpecs 0 template", None),
        ("ray-job.yaml", "rayClusterSpec headGroupSpec template spec containers 0 env", 1.5),
        ("jobset.yaml", "replicatedJobs 0 template spec template spec containers 0 env", -1),
        ("mpi-job.yaml", "mpiReplicaSpecs Launcher template spec containers 0 env", [{"name": {}}]),
    ],
)
def test_parts_of_no_shape_at_all_are_refused_by_their_path(name: str, path: str, value: object) -> None:
    document = example(name)
    *parents, last = (int(key) if key.isdigit() else key for key in path.split())
    place: Any = document["spec"]
    for key in parents:
        place = place[key]
    place[last] = value
    assert problems(document)[0].startswith("spec.")
