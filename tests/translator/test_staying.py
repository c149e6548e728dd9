"""A job that no cloud could run stays on its Kubernetes cluster, and says why; nothing else is held back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from starburst.app.config import parse_config
from starburst.app.wiring.stored import intake_rules
from starburst.domain.job import CloudChoice, Job
from starburst.runs.peers import PEER_VARIABLES, TORCHRUN_PORT
from tests.translator.manifests import GOOD_JOB, errors, job, pod, read_one
from translator.carried import Bucket, Carried
from translator.errors import ManifestErrors
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_manifests
from translator.tasks.cluster_names import GIVEN_TO_GANGS

CLAIM = job("POD/volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
KUBERNETES = {"cluster": {"kind": "kubernetes"}}


def choosing(cloud: str, manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {"name": "train", "annotations": {"starburst.io/cloud": cloud}}}


def taken(manifest: dict[str, Any], rules: IntakeRules) -> tuple[Job, tuple[str, ...]]:
    (found,) = read_manifests(json.dumps(manifest), "f", suffix=lambda: "x", taking=rules)
    return found.job, found.notes


def test_a_job_with_a_claim_stays_with_a_note() -> None:
    found = read_one(CLAIM, native=True)
    assert found.job.cloud is CloudChoice.NEVER
    assert found.job.stays == "stays on the cluster: PVC data"
    assert found.notes == ("stays on the cluster: PVC data",)


def test_the_note_says_how_it_could_leave() -> None:
    found = read_one(CLAIM, native=True, carries=Carried())
    (note,) = found.notes
    assert note.startswith(
        "stays on the cluster: PVC data; name what stands in for pvc/data under cloud.volumes"
    )


@pytest.mark.parametrize("kind", ["Job", "Pod"])
@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("vault.hashicorp.com/agent-inject", "true", "secrets of Vault"),
        ("k8s.v1.cni.cncf.io/networks", "sriov", "networks of the cluster"),
        ("vault.hashicorp.com/agent-inject", "false", ""),
        ("vault.hashicorp.com/role", "ci", ""),
    ],
)
def test_what_software_of_the_cluster_puts_into_pods_keeps_a_job_there(
    key: str, value: str, part: str, kind: str
) -> None:
    template = {"annotations": {key: value}}
    manifest = job("spec/template/metadata", template)
    if kind == "Pod":
        manifest = {**pod(), "metadata": {"name": "train", **template}}
    stays = read_one(manifest, native=True).job.stays
    assert stays == (f"stays on the cluster: {part}" if part else "")


@pytest.mark.parametrize("place", ["args", "env"])
def test_a_reference_to_what_a_gang_is_given_is_filled_in_on_kubernetes_alone(place: str) -> None:
    """Pods have these variables of Starburst's; elsewhere they are set when a task starts."""
    text = "--addr=$(MASTER_ADDR) $$(RANK)"
    gang = job(f"CONTAINER/{place}", [text] if place == "args" else [{"name": "ADDR", "value": text}])
    assert read_one(gang, native=True).job.stays == "", "one task is given none"
    gang["spec"] |= {"parallelism": 2, "completions": 2}
    assert read_one(gang, native=True).job.stays == "stays on the cluster: $(MASTER_ADDR)"
    (line,) = errors(gang)
    assert line.endswith("$(MASTER_ADDR) is known only when the job runs; read $MASTER_ADDR in the command")
    own = gang["spec"]["template"]["spec"]["containers"][0]
    own["env"] = [{"name": "MASTER_ADDR", "value": "db"}, *own.get("env", [])]
    assert read_one(gang, native=True).job.stays == ""
    assert set(GIVEN_TO_GANGS) == PEER_VARIABLES - {TORCHRUN_PORT}


def test_a_mapped_claim_leaves() -> None:
    found = read_one(CLAIM, native=True, carries=Carried({"pvc/data": Bucket("s3://data")}))
    assert found.job.cloud is CloudChoice.AUTO
    assert found.job.stays == ""


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("POD/initContainers", [{"name": "fetch", "image": "a"}], "the init container fetch"),
        ("POD/hostNetwork", True, "hostNetwork"),
        ("POD/os", {"name": "windows"}, "Windows"),
        ("POD/volumes", [{"name": "v", "csi": {"driver": "x.csi"}}], "CSI x.csi"),
        ("POD/volumes", [{"name": "v", "secret": {"secretName": "keys"}}], "Secret keys"),
        (
            "CONTAINER/env",
            [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
            "a value of ConfigMap c",
        ),
        ("spec/successPolicy", {"rules": [{"succeededCount": 1}]}, "successPolicy"),
    ],
)
def test_what_keeps_it_is_named(path: str, value: Any, part: str) -> None:
    assert read_one(job(path, value), native=True).job.stays == f"stays on the cluster: {part}"


def gang(command: str, tasks: int = 2) -> dict[str, Any]:
    manifest = job("spec/parallelism", tasks)
    manifest["spec"] |= {"completions": tasks, "completionMode": "Indexed"}
    pod = manifest["spec"]["template"]["spec"]
    pod["subdomain"] = "workers"
    pod["containers"][0]["command"] = ["sh", "-c", command]
    return manifest


def test_a_gang_that_names_its_pods_stays_and_one_that_reads_their_addresses_may_leave() -> None:
    by_name = read_one(gang("torchrun --master-addr train-0.workers"), native=True)
    assert by_name.job.stays == "stays on the cluster: names of pods in workers"
    assert "let it read $MASTER_ADDR" in by_name.notes[0]
    assert not read_one(gang("torchrun --master-addr $MASTER_ADDR # co.workersmith"), native=True).job.stays
    assert not read_one(gang("ping train-0.workers", tasks=1), native=True).job.stays


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("CONTAINER/command", ["train", "--db=postgres.lab.svc.cluster.local:5432"]),
        ("CONTAINER/args", ["http://mlflow.tools.svc/api"]),
        ("CONTAINER/env", [{"name": "REDIS", "value": "redis.default.svc:6379"}]),
    ],
)
def test_a_service_of_the_cluster_is_named_to_a_job_that_may_leave(path: str, value: Any) -> None:
    found = read_one(job(path, value), native=True)
    assert [note for note in found.notes if "names a service of a Kubernetes cluster" in note]
    assert not found.job.stays


@pytest.mark.parametrize("key", ["schedulingGroup", "workloadRef"])
def test_a_group_that_another_scheduler_would_start_together_is_taken_with_a_note(key: str) -> None:
    found = read_one(job(f"POD/{key}", {"podGroupName": "g"}), native=True)
    assert "Starburst starts the tasks of a job together by itself" in found.notes[0]
    assert f'"{key}":{{"podGroupName":"g"}}' in (found.workload.manifest or "")


def test_a_job_that_stays_is_told_nothing_about_what_a_cloud_would_drop() -> None:
    manifest = job("POD/volumes", [{"name": "v", "csi": {"driver": "d"}}, {"name": "e", "emptyDir": {}}])
    assert read_one(manifest, native=True).notes == ("stays on the cluster: CSI d",)


def test_what_must_leave_and_cannot_is_refused() -> None:
    (line,) = errors(choosing("only", CLAIM), native=True)
    assert "persistentVolumeClaim: does not go along to a cloud" in line
    with pytest.raises(ManifestErrors):
        read_one(choosing("only", CLAIM), native=True)


def test_the_policy_may_refuse_instead() -> None:
    rules = intake_rules(
        parse_config({**KUBERNETES, "policy": {"cannot_leave": "refuse"}, "cloud": {"kind": "skypilot"}}, "c")
    )
    with pytest.raises(ManifestErrors, match=r"pvc/data under cloud\.volumes"):
        taken(CLAIM, rules)


def test_without_a_cloud_nothing_is_refused_for_it_and_no_note_speaks_of_one() -> None:
    rules = intake_rules(parse_config({**KUBERNETES, "policy": {"cannot_leave": "refuse"}}, "c"))
    found, notes = taken(CLAIM, rules)
    assert notes == ()
    # A config with a cloud may come later: the job must not leave then either.
    assert (found.cloud, found.stays) == (CloudChoice.NEVER, "stays on the cluster: PVC data")
    assert taken(GOOD_JOB, rules)[0].cloud is CloudChoice.AUTO
