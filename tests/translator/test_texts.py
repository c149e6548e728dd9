"""Whole files from the wild: jobs with companions, copies of stored objects, and what is no manifest."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.translator.manifests import GOOD_JOB, errors, job, pod, read
from translator.tasks.skypilot import to_skypilot

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}


def test_what_is_no_job_is_passed_over_and_named_in_one_line() -> None:
    (found,) = read(
        CONFIG_MAP, GOOD_JOB, {"apiVersion": "v1", "kind": "List", "items": [SERVICE]}, native=True
    )
    (note,) = found.notes
    assert note == (
        "not a job and passed over: ConfigMap conf, Service web; apply them with kubectl apply -f, or give "
        "--apply-rest"
    )


def test_a_file_without_a_job_is_refused() -> None:
    assert errors(SERVICE) == [
        "train.yaml, document 1: kind: Service web: is no job; apply it with kubectl apply -f; "
        "Starburst takes batch/v1 Job and v1 Pod"
    ]


@pytest.mark.parametrize("broken", [{"kind": "Service"}, {"apiVersion": "v1", "kind": "service"}])
def test_what_is_no_whole_object_is_not_passed_over(broken: dict[str, Any]) -> None:
    assert len(errors(GOOD_JOB, broken)) == 1


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("jobset.example.org/v1", "JobSet"),
        ("kubeflow.org/v1", "PaddleJob"),
        ("ray.example.org/v1", "RayJob"),
        ("ray.example.org/v1", "RayCluster"),
        ("batch/v2alpha1", "CronJob"),
        ("elastic.example.org/v1", "ElasticJob"),
    ],
)
def test_a_workload_that_is_not_taken_is_named_and_never_passed_over(api_version: str, kind: str) -> None:
    other = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": {}}
    (line,) = errors(GOOD_JOB, other)
    assert re.search(
        rf"kind: an? {kind} is not taken yet; |apiVersion: .* is not that of an? {kind}; write ", line
    )


def test_a_volcano_job_is_never_told_to_become_a_job_by_its_api_version() -> None:
    lines = errors(job("apiVersion", "batch.volcano.sh/v1alpha1"))
    assert any("is not a field of a Volcano Job spec" in line for line in lines)
    assert not any("batch/v1 for a Job" in line for line in lines)


def test_the_head_of_a_pipeline_of_skypilot_is_named() -> None:
    (line,) = errors("name: all", "resources: {accelerators: A100:1}\nrun: python train.py\n")
    assert "is the head of a SkyPilot pipeline; submit its tasks one by one" in line


def test_a_suspended_job_is_held() -> None:
    (found,) = read(job("spec/suspend", True), native=True)
    assert found.job.hold
    assert found.notes == ("spec.suspend: is held; let it go with starburst release",)


def test_a_pod_without_a_restart_policy_is_taken_as_one_that_ends() -> None:
    (found,) = read(pod(restartPolicy=None), native=True)
    (note,) = found.notes
    assert note.startswith("spec.restartPolicy: is absent, which is Always to Kubernetes; taken as Never")


def test_a_copy_of_a_stored_pod_loses_what_the_server_added() -> None:
    token = {"name": "kube-api-access-x8xqz", "projected": {"sources": []}}
    stored = pod(nodeName="n1", volumes=[token], priority=0)
    stored["metadata"] |= {"uid": "1d0b7a2c", "resourceVersion": "12", "managedFields": []}
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    stored["spec"]["containers"][0]["volumeMounts"] = [{"name": token["name"], "mountPath": place}]
    (found,) = read({**stored, "status": {"phase": "Running"}}, native=True)
    assert found.notes == ()
    assert "kube-api-access" not in (found.workload.manifest or "")
    assert "nodeName" not in (found.workload.manifest or "")


def test_lists_of_one_kind_are_lists() -> None:
    items = [{"metadata": {"name": name}, "spec": GOOD_JOB["spec"]} for name in ("a", "b")]
    found = read({"apiVersion": "batch/v1", "kind": "JobList", "items": items})
    assert [item.job.name for item in found] == ["a", "b"]


def test_completions_in_turn_are_the_job_controllers() -> None:
    manifest = job("spec/completions", 8)
    manifest["spec"]["parallelism"] = 2
    (found,) = read(manifest, native=True)
    assert len(found.job.tasks) == 2
    assert found.job.stays == "stays on the cluster: 8 completions by 2 at a time"


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_no_more_pods_than_completions_are_a_gang_that_may_leave(native: bool, mode: str) -> None:
    manifest = job("spec/completions", 2)
    manifest["spec"] |= {"parallelism": 5, "completionMode": mode}
    (found,) = read(manifest, native=native)
    assert (len(found.job.tasks), found.job.stays, found.job.array) == (2, "", None)
    task = to_skypilot(manifest)
    assert task.task["num_nodes"] == 2
    assert task.refused() == ()


def test_resources_of_device_plugins_are_taken_on_kubernetes_and_nowhere_else() -> None:
    manifest = job("spec|template|spec|containers|0|resources|limits|google.com/tpu", 4)
    assert errors(manifest, native=False) != []
    (found,) = read(manifest, native=True)
    assert found.job.stays == "stays on the cluster: google.com/tpu"
