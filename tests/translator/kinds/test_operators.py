"""Kinds of operators as gangs: what each task runs and finds, what decides, what is refused or noted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.domain.job import Submission
from translator.errors import ManifestErrors
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_firsts

EXAMPLES = Path(__file__).parents[3] / "configs" / "examples"


def read(document: str | dict[str, Any], *, native: bool = False) -> Submission:
    text = document if isinstance(document, str) else yaml.safe_dump(document)
    (found,) = read_firsts(text, "job.yaml", suffix=lambda: "a1b2c", taking=IntakeRules(native=native))
    return found


def problems(document: dict[str, Any], *, native: bool = False) -> list[str]:
    try:
        read(document, native=native)
    except ManifestErrors as bad:
        return [error.line for error in bad.errors]
    return []


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return found


def outputs(item: Submission) -> list[str]:
    """What each task prints, where the addresses of the gang are 10.0.0.1, 10.0.0.2, …; none sleeps."""
    size = len(item.job.tasks)
    hosts = [f"10.0.0.{rank + 1}" for rank in range(size)]
    gang = {"MASTER_ADDR": hosts[0], "MASTER_PORT": "2000", "SKYPILOT_NODE_IPS": "\n".join(hosts)}
    found = []
    for rank in range(size):
        env = {"PATH": os.environ["PATH"], **dict(item.workload.env), "JOB_COMPLETION_INDEX": str(rank)}
        env |= gang if size > 1 else {}
        command = [word.replace("sleep 600", ":") for word in item.workload.command]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
        found.append(ran.stdout.strip())
    return found


def replicas(
    count: int, command: list[str] | None, policy: str | None = "Never", **more: Any
) -> dict[str, Any]:
    container = {"name": "main", "image": "me/train", **({"command": command} if command else {}), **more}
    return {"replicas": count, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}


def training(kind: str = "PyTorchJob", specs: str = "pytorchReplicaSpecs", **roles: Any) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "default"}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata, "spec": {specs: roles}}


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def test_a_pytorch_job_is_a_gang_of_its_master_and_workers() -> None:
    found = read(example("pytorch-job.yaml"))
    assert (found.job.name, len(found.job.tasks), found.job.retries) == ("ddp", 4, 2)
    assert found.workload.deciding == (0,)
    assert outputs(found) == [f"rank {rank} of 4 at 10.0.0.1" for rank in range(4)]


def test_torchrun_finds_its_variables_and_references_to_them_are_filled_in() -> None:
    run = shell(
        "echo $PET_NNODES $PET_NODE_RANK $PET_MASTER_ADDR:$PET_MASTER_PORT $PET_NPROC_PER_NODE $0 $LR"
    )
    words = {
        "args": ["--rank=$(RANK) it's $(HOME_OF_NOBODY)"],
        "env": [{"name": "LR", "value": "$(WORLD_SIZE)"}],
    }
    document = training(Master=replicas(1, run, **words), Worker=replicas(1, run, args=["worker"]))
    document["spec"]["nprocPerNode"] = "4"
    assert outputs(read(document)) == [
        "2 0 10.0.0.1:2000 4 --rank=0 it's $(HOME_OF_NOBODY) 8",
        "2 1 10.0.0.1:2000 4 worker",
    ]


def test_an_elastic_policy_runs_with_its_replicas_and_says_so() -> None:
    document = training(Worker=replicas(2, shell("echo $PET_NNODES $PET_RDZV_BACKEND $PET_RDZV_ENDPOINT")))
    document["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "c10d"}
    found = read(document)
    assert outputs(found) == ["2 c10d 10.0.0.1:2000"] * 2
    assert any("it runs with 2 tasks, and none is added" in each for each in found.notes)
    assert found.job.least_tasks == 1


def test_which_kinds_may_go_on_with_fewer_tasks() -> None:
    def least(document: dict[str, Any], wish: str) -> tuple[int, bool]:
        document["metadata"]["annotations"] = {"starburst.io/elastic": wish}
        found = read(document)
        return found.job.least_tasks, any("starts again as a whole" in note for note in found.notes)

    assert least(example("pytorch-job.yaml"), "true") == (1, False)
    assert least(example("pytorch-job.yaml"), "3") == (3, False)
    assert least(example("ray-job.yaml"), "true") == (1, False)
    assert least(example("jobset.yaml"), "true") == (0, True)
    assert least(example("mpi-job.yaml"), "true") == (0, True)
    policy = example("pytorch-job.yaml")
    policy["spec"]["elasticPolicy"] = {"minReplicas": 1}
    assert least(policy, "false") == (0, False)


def test_a_single_master_finds_itself() -> None:
    assert outputs(read(training(Master=replicas(1, shell("echo $MASTER_ADDR $RANK $WORLD_SIZE"))))) == [
        "localhost 0 1"
    ]


def test_a_program_left_to_the_image_has_what_the_gang_has_and_a_note() -> None:
    alone = training(Master=replicas(1, None, args=["--x"]), Worker=replicas(1, None, args=["--x"]))
    found = read(alone, native=True)
    assert any("so PET_… and PYTHONUNBUFFERED are not set" in note for note in found.notes)
    differs = training(Master=replicas(1, None, args=["--x"]), Worker=replicas(1, None, args=["--y"]))
    (line,) = problems(differs, native=True)
    assert line.startswith(
        "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].command: is missing; "
    )


@pytest.mark.parametrize("clean", ["Running", "None"])
def test_a_master_ends_the_others_if_pods_are_cleaned_up(clean: str) -> None:
    document = training(Master=replicas(1, shell("a")), Worker=replicas(2, shell("b")))
    document["spec"]["runPolicy"] = {"cleanPodPolicy": clean, "activeDeadlineSeconds": 60}
    found = read(document)
    assert found.workload.deciding == ((0,) if clean == "Running" else ())
    assert found.workload.time_limit_s == 60


def test_a_tf_job_has_its_cluster_and_ends_with_its_first_worker() -> None:
    run = shell("echo $TF_CONFIG")
    found = read(training("TFJob", "tfReplicaSpecs", PS=replicas(1, run), Worker=replicas(2, run)))
    assert found.workload.deciding == (0,)
    hosts = '{"worker":["10.0.0.1:2000","10.0.0.2:2001"],"ps":["10.0.0.3:2002"]}'
    tasks = [("worker", 0), ("worker", 1), ("ps", 0)]
    assert outputs(found) == [
        f'{{"cluster":{hosts},"task":{{"type":"{kind}","index":{index}}},"environment":"cloud"}}'
        for kind, index in tasks
    ]


def test_an_xgboost_job_knows_its_workers() -> None:
    run = shell("echo $RANK $WORLD_SIZE $MASTER_ADDR $WORKER_ADDRS")
    found = read(training("XGBoostJob", "xgbReplicaSpecs", Master=replicas(1, run), Worker=replicas(2, run)))
    assert outputs(found) == [f"{rank} 3 10.0.0.1 10.0.0.2,10.0.0.3" for rank in range(3)]


def test_roles_may_ask_for_different_resources_where_pods_are_not_made_of_one_template() -> None:
    gpus = [{"resources": {"limits": {"nvidia.com/gpu": count, "cpu": 1}}} for count in (1, 4)]
    document = training(Master=replicas(1, shell("a"), **gpus[0]), Worker=replicas(2, shell("b"), **gpus[1]))
    assert [task.gpus for task in read(document).job.tasks] == [1, 4, 4]
    (line,) = problems(document, native=True)
    assert line.startswith(
        "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].resources: asks for 1 GPUs"
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"image": "me/other"}, "containers[0].image: differs from that of Master"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "containers[0].volumeMounts: differs"),
        (
            {"env": [{"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            "env[0].valueFrom: is of one",
        ),
    ],
)
def test_what_a_shell_cannot_choose_is_refused(change: dict[str, Any], line: str) -> None:
    found = problems(training(Master=replicas(1, shell("a")), Worker=replicas(1, shell("b"), **change)))
    assert any(
        f"spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].{line.partition('.')[2]}" in each
        or line in each
        for each in found
    )


@pytest.mark.parametrize(
    "broken", [{}, {"containers": []}, {"containers": [{}]}, {"containers": "x"}, [], "x", 5]
)
@pytest.mark.parametrize("both", [True, False])
def test_a_template_that_is_none_is_refused_by_its_path(broken: Any, both: bool) -> None:
    worker = {"replicas": 1, "template": {"spec": broken}}
    document = training(Master=worker if both else replicas(1, shell("a")), Worker=worker)
    assert any(line.startswith("spec.pytorchReplicaSpecs.") for line in problems(document))


@pytest.mark.parametrize(
    "spec", [None, [], "x", {}, {"pytorchReplicaSpecs": {}}, {"pytorchReplicaSpecs": {"Master": 1}}]
)
def test_a_spec_that_is_none_is_refused(spec: Any) -> None:
    document = {**training(), "spec": spec}
    assert problems(document)
    for kind, version in (
        ("JobSet", "jobset.x-k8s.io/v1alpha2"),
        ("MPIJob", "kubeflow.org/v2beta1"),
        ("Job", "batch.volcano.sh/v1alpha1"),
        ("TrainJob", "trainer.kubeflow.org/v1alpha1"),
    ):
        assert problems({**document, "kind": kind, "apiVersion": version})


def test_a_jobset_is_a_gang_that_its_driver_ends() -> None:
    found = read(example("jobset.yaml"))
    assert (len(found.job.tasks), found.job.retries, found.workload.deciding) == (3, 3, (0,))
    assert outputs(found) == ["driver of 10.0.0.2 10.0.0.3", "worker 0 for 10.0.0.1", "worker 1 for 10.0.0.1"]


def test_what_a_jobset_writes_on_pods_is_told_to_each_task() -> None:
    def field(name: str, key: str) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}

    keys = {"JOB": "job-index", "SET": "jobset-name", "FIRST": "coordinator"}
    env = [field(name, f"jobset.sigs.k8s.io/{key}") for name, key in keys.items()]
    container = {
        "name": "c",
        "image": "me/train",
        "command": shell("echo $SET $JOB $JOB_COMPLETION_INDEX $FIRST"),
        "env": env,
    }
    job = {"parallelism": 2, "template": {"spec": {"containers": [container]}}}
    coordinator = {"replicatedJob": "w", "jobIndex": 1}
    spec = {
        "coordinator": coordinator,
        "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": job}}],
    }
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s"},
        "spec": spec,
    }
    assert outputs(read(document)) == [f"s {job} {pod} 10.0.0.3" for job in (0, 1) for pod in (0, 1)]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("coordinator", {"replicatedJob": "boss"}, "spec.coordinator: names no pod of the set"),
        (
            "successPolicy",
            {"operator": "Any"},
            'spec.successPolicy.operator: "Any": of several Jobs all have to',
        ),
        (
            "successPolicy",
            {"targetReplicatedJobs": ["boss"]},
            "spec.successPolicy.targetReplicatedJobs: boss is not",
        ),
        ("replicatedJobs", [], "spec.replicatedJobs: is missing"),
        ("volumeClaimPolicies", [{}], "spec.volumeClaimPolicies: claims are not made"),
    ],
)
def test_what_a_jobset_would_run_wrongly_without_is_refused(path: str, value: Any, line: str) -> None:
    document = example("jobset.yaml")
    document["spec"][path] = value
    assert any(found.startswith(line) for found in problems(document))


def test_a_volcano_job_is_a_gang_that_its_workers_end() -> None:
    found = read(example("volcano-job.yaml"))
    assert (len(found.job.tasks), found.workload.deciding) == (3, (1, 2))
    assert outputs(found) == [
        "serves 10.0.0.2,10.0.0.3",
        "worker 0 of 2 asks 10.0.0.1",
        "worker 1 of 2 asks 10.0.0.1",
    ]


def test_what_ends_a_volcano_job_is_read_wherever_it_is_written() -> None:
    """Else a server among the tasks would run, and cost, without end."""
    document = example("volcano-job.yaml")
    worker = document["spec"]["tasks"][1]
    worker["policies"] = [{"events": ["PodFailed", "TaskCompleted"], "action": "CompleteJob"}]
    assert read(document).workload.deciding == (1, 2)
    document["spec"]["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    assert problems(document) == [
        "spec.policies[0]: of the whole job: write it in the task whose end is that of the job"
    ]
    document["spec"]["tasks"] = [worker]
    assert not problems(document)


def test_a_volcano_job_with_ssh_between_its_tasks_is_refused() -> None:
    document = example("volcano-job.yaml")
    document["spec"]["plugins"]["ssh"] = []
    assert (
        "spec.plugins.ssh: tasks have no ssh to one another; the commands do not name it"
        in read(document).notes
    )
    document["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["command"] = ["mpirun", "train"]
    (line,) = problems(document)
    assert line.startswith("spec.plugins.ssh: tasks have no ssh to one another; ")


def test_an_mpi_job_of_one_worker_runs_its_launcher_with_the_workers_gpus() -> None:
    found = read(example("mpi-job.yaml"))
    assert [task.gpus for task in found.job.tasks] == [2]
    assert outputs(found) == ["localhost slots=2"]


def test_a_train_job_says_its_image_and_command() -> None:
    assert outputs(read(example("train-job.yaml"))) == ["node 0 of 2", "node 1 of 2"]
    document = example("train-job.yaml")
    document["spec"]["activeDeadlineSeconds"] = 3600
    assert read(document).workload.time_limit_s == 3600
    del document["spec"]["trainer"]["image"]
    (line,) = problems(document)
    assert line.startswith("spec.trainer.image: is missing; the runtime torch-distributed is in a cluster")


def test_on_a_cluster_the_manifest_is_an_indexed_job_with_its_success_policy() -> None:
    found = read(example("pytorch-job.yaml"), native=True)
    assert found.workload.manifest is not None
    spec = yaml.safe_load(found.workload.manifest)["spec"]
    assert (spec["completions"], spec["completionMode"], spec["backoffLimit"]) == (4, "Indexed", 2)
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert found.job.stays == ""


@pytest.mark.parametrize(
    ("policy", "deciding", "line"),
    [
        ({"rules": [{"succeededIndexes": "0,2-3"}]}, (0, 2, 3), ""),
        ({"rules": [{"succeededIndexes": "0-3"}]}, (), ""),
        ({"rules": [{"succeededIndexes": "0-4"}]}, (), "must be below the number of tasks, 4"),
        ({"rules": [{"succeededIndexes": "a"}]}, (), "must be indexes such as 0 or 0,2-3"),
        (
            {"rules": [{"succeededCount": 2}]},
            (),
            "of success policies one rule with succeededIndexes is read",
        ),
    ],
)
def test_the_success_policy_of_a_job_is_read(policy: Any, deciding: tuple[int, ...], line: str) -> None:
    document = example("gang.yaml")
    document["spec"] |= {"parallelism": 4, "completions": 4, "successPolicy": policy}
    if line:
        assert any(line in found for found in problems(document))
    else:
        assert read(document).workload.deciding == deciding
