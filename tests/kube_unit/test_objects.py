"""What is read of nodes, pods and jobs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.domain.constraints import ANY_UNTAINTED, NODE_NAME, Requirement, Rules, Taint, Toleration
from starburst.kube.objects import (
    Owner,
    read_job,
    read_node,
    read_pod,
)
from starburst.kube.pods.outcome import NEVER_RAN
from starburst.kube.resources import timestamp
from tests.kube_unit.samples import a_pod, container
from tests.kube_unit.store import Object, merged

GIB = 1024**3


def pod(**more: Any) -> Object:
    """As the API server hands it out."""
    made: Object = merged(a_pod(), {"metadata": {"uid": "u1", "creationTimestamp": "2026-11-21T15:00:00Z"}})
    found: Object = merged(made, more)
    return found


# Nodes.


def a_node(
    labels: Object | None = None, spec: Object | None = None, ready: str = "True", **status: Any
) -> Object:
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": "n", "uid": "u", "labels": labels},
        "spec": spec,
        "status": {"conditions": conditions, **status},
    }


def test_a_node_has_its_taints_its_labels_and_whether_it_takes_pods() -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"}]
    node = read_node(a_node({"zone": "z"}, {"taints": taints, "unschedulable": True}))
    assert node.taints == (Taint("gpu", "", "NoSchedule"), Taint("a", "b", "NoExecute"))
    assert (node.labels, node.schedulable, node.ready) == ({"zone": "z"}, False, True)
    assert read_node(a_node()).schedulable


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_does_not_say_it_is_ready_is_not(ready: str) -> None:
    assert not read_node(a_node(ready=ready)).ready
    assert not read_node({"metadata": {"name": "n", "uid": "u"}}).ready


@pytest.mark.parametrize(
    ("label", "value", "kind"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("nvidia.com/gpu.product", "Tesla-T4", "T4"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-v100", "V100"),
        ("accelerator", "none", ""),
        ("zone", "A100", ""),
    ],
)
def test_the_gpu_type_is_what_the_usual_labels_name(label: str, value: str, kind: str) -> None:
    assert read_node(a_node({label: value})).gpu_type == kind


def test_the_label_of_the_maker_comes_first() -> None:
    assert (
        read_node(a_node({"accelerator": "nvidia-l4", "nvidia.com/gpu.product": "NVIDIA-H100"})).gpu_type
        == "H100"
    )


# Pods.


def test_a_pod_as_small_as_can_be() -> None:
    view = read_pod({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {}})
    assert view.key == ("ns", "p")
    assert (view.node, view.phase, view.over, view.deleting, view.priority) == (
        "",
        "Pending",
        False,
        False,
        0,
    )
    assert (view.requests, view.selector, view.rules) == ({"pods": 1}, (), ANY_UNTAINTED)
    assert (view.exit_code, view.reason, view.message, view.owner, view.index) == (None, "", "", None, None)
    assert view.preempts


def test_of_labels_and_annotations_only_ours_and_the_index_are_kept() -> None:
    view = read_pod(
        pod(
            metadata={
                "labels": {"app": "x", "starburst.io/job": "j"},
                "annotations": {
                    "starburst.io/attempt": "2",
                    "batch.kubernetes.io/job-completion-index": "3",
                    "a": "b",
                },
            }
        )
    )
    assert view.labels == {"starburst.io/job": "j"}
    assert view.annotations["starburst.io/attempt"] == "2"
    assert len(view.annotations) == 2
    assert view.index == 3


@pytest.mark.parametrize("text", ["", "-1", "two", "1.5", "9" * 5000])
def test_an_index_that_is_no_number_is_none(text: str) -> None:
    metadata = {"annotations": {"batch.kubernetes.io/job-completion-index": text}}
    assert read_pod(pod(metadata=metadata)).index is None


def test_the_owner_is_the_one_that_controls_it() -> None:
    owners = [
        {"kind": "A", "name": "a", "uid": "1"},
        {"kind": "Job", "name": "j", "uid": "2", "controller": True},
    ]
    assert read_pod(pod(metadata={"ownerReferences": owners})).owner == Owner("Job", "j", "2")
    assert read_pod(pod(metadata={"ownerReferences": owners[:1]})).owner is None


def test_what_a_pod_demands_of_its_node_is_read() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    wish = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    view = read_pod(
        pod(
            spec={
                "nodeSelector": {"b": "2", "a": "1"},
                "affinity": {"nodeAffinity": wish},
                "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoExecute"}],
            }
        )
    )
    assert view.selector == (("a", "1"), ("b", "2"))
    assert view.rules == Rules(
        affinity=((Requirement("zone", "In", ("a", "b")),), (Requirement(NODE_NAME, "In", ("n1",)),), ()),
        tolerations=(Toleration("", "Exists"), Toleration("k", "Equal", "v", "NoExecute")),
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "podAffinity",
        ),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "podAntiAffinity",
        ),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
    ],
)
def test_wishes_that_nobody_here_understands_are_named(spec: Object, field: str) -> None:
    assert [name.rpartition(".")[2] for name in read_pod(pod(spec=spec)).unsupported] == [field]


def test_mere_preferences_are_not_named() -> None:
    soft: Object = {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}
    spec = {
        "affinity": {"podAffinity": soft, "podAntiAffinity": soft, "nodeAffinity": soft},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
    }
    assert read_pod(pod(spec=spec)).unsupported == ()


def test_host_ports_of_containers_and_sidecars_are_taken() -> None:
    ports = [{"containerPort": 1}, {"containerPort": 2, "hostPort": 80}, {"hostPort": 53, "protocol": "UDP"}]
    sidecar = {"ports": [{"hostPort": 81}], "restartPolicy": "Always"}
    spec = {"containers": [{"ports": ports}], "initContainers": [sidecar, {"ports": [{"hostPort": 82}]}]}
    assert read_pod(pod(spec=spec)).host_ports == ("TCP/80", "UDP/53", "TCP/81")


# How a pod ends.


def ended(code: int, reason: str = "", name: str = "main", **more: Any) -> Object:
    told = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), **more}
    return {"name": name, "state": {"terminated": told}}


def waiting(reason: str, name: str = "main", message: str = "") -> Object:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def at_work(name: str) -> Object:
    return {"name": name, "state": {"running": {}}}


@pytest.mark.parametrize(
    ("told", "phase"),
    [
        ({}, "Failed"),
        ({"startedAt": "2026-01-01T00:00:00Z"}, "Succeeded"),
        ({"finishedAt": "2026-01-01T00:00:00Z"}, "Succeeded"),
        ({"reason": "Completed"}, "Succeeded"),
    ],
)
def test_a_success_of_a_container_that_never_ran_is_none(told: Object, phase: str) -> None:
    none = {"exitCode": 0, "startedAt": None, "finishedAt": None, "containerID": "containerd://x"}
    main = {"name": "main", "state": {"terminated": {**none, **told}}}
    view = read_pod(pod(status={"phase": "Succeeded", "containerStatuses": [main]}))
    assert (view.phase, view.over, view.reason == NEVER_RAN) == (phase, True, phase == "Failed")


@pytest.mark.parametrize(
    ("main", "init", "exit_code", "reason"),
    [
        ([ended(0)], [], 0, ""),
        ([ended(3)], [], 3, "Error"),
        ([ended(1), ended(137, "OOMKilled")], [], 137, "OOMKilled"),
        ([{"name": "main", "state": {"running": {}}}], [ended(0, name="init")], None, ""),
        ([waiting("PodInitializing")], [ended(0, name="init")], None, "ContainerCreating"),
        ([waiting("PodInitializing")], [at_work("init")], None, "PodInitializing"),
        ([waiting("PodInitializing")], [at_work("side")], None, "ContainerCreating"),
        ([waiting("PodInitializing")], [ended(7, name="init")], 7, "Error"),
        ([waiting("PodInitializing")], [waiting("ErrImagePull", "init")], None, "ErrImagePull"),
        ([waiting("ContainerCreating"), waiting("ImagePullBackOff")], [], None, "ImagePullBackOff"),
        ([ended(0)], [ended(143, name="side")], 0, ""),
        ([{"name": "main"}, {"name": "b", "state": {}}], [], None, ""),
        ([], [], None, ""),
    ],
)
def test_the_exit_code_is_that_of_the_work(
    main: list[Object], init: list[Object], exit_code: int | None, reason: str
) -> None:
    view = read_pod(
        pod(
            spec={"initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}]},
            status={"containerStatuses": main, "initContainerStatuses": init},
        )
    )
    assert (view.exit_code, view.reason) == (exit_code, reason)


AT = "2026-01-01T00:00:0{}Z"
EARLY, LATE = {"finishedAt": AT.format(1)}, {"finishedAt": AT.format(3)}
AGAIN = {"lastState": {"terminated": {"exitCode": 1, **LATE}}}


@pytest.mark.parametrize(
    ("phase", "main", "init", "second"),
    [
        ("Succeeded", [ended(0, **EARLY)], [], 1),
        ("Failed", [ended(0, **EARLY), ended(1, name="b", **LATE)], [], 3),
        ("Succeeded", [ended(0, **EARLY)], [ended(143, name="side", **LATE)], 3),
        ("Succeeded", [{**ended(0, **EARLY), **AGAIN}], [], 1),
        ("Failed", [waiting("PodInitializing")], [ended(7, name="init", **EARLY)], 1),
        ("Running", [ended(0, **EARLY), at_work("b")], [], None),
        ("Failed", [ended(1, **EARLY), at_work("b")], [], None),
        ("Failed", [ended(1, **EARLY), {**waiting("CrashLoopBackOff", "b"), **AGAIN}], [], None),
        ("Failed", [ended(1, **EARLY), ended(137, "ContainerStatusUnknown", "b", finishedAt=None)], [], None),
        ("Failed", [ended(128, "StartError", finishedAt="1970-01-01T00:00:00Z")], [], None),
        ("Failed", [], [], None),
    ],
)
def test_a_pod_ended_with_the_last_of_its_containers_if_that_is_known(
    phase: str, main: list[Object], init: list[Object], second: int | None
) -> None:
    view = read_pod(pod(status={"phase": phase, "containerStatuses": main, "initContainerStatuses": init}))
    assert view.ended_at == (None if second is None else timestamp(AT.format(second)))


def test_a_job_says_when_it_was_told_to_be_over_and_how_many_pods_had_ended() -> None:
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": AT.format(5)}
    item = {
        "metadata": {"namespace": "ns", "name": "j", "uid": "u"},
        "spec": {"template": {"spec": {}}},
        "status": {"conditions": [failed], "failed": 2, "succeeded": 1},
    }
    view = read_job(item)
    assert (view.ended_at, view.ended_pods) == (timestamp(AT.format(5)), 3)
    alive = read_job({**item, "status": {}})
    assert (alive.ended_at, alive.ended_pods) == (None, 0)


@pytest.mark.parametrize("reason", ["Evicted", "DeadlineExceeded", "OutOfcpu"])
def test_a_pod_that_was_ended_as_a_whole_says_why_and_may_have_no_exit_code(reason: str) -> None:
    status = {"phase": "Failed", "reason": reason, "message": "because"}
    view = read_pod(pod(status=status))
    assert (view.over, view.exit_code, view.reason, view.message) == (True, None, reason, "because")
    view = read_pod(pod(status={**status, "containerStatuses": [ended(137)]}))
    assert (view.exit_code, view.reason) == (137, reason)


def test_the_message_is_of_what_the_reason_is_of() -> None:
    statuses = [waiting("ContainerCreating", message="soon"), ended(1, message="no such file")]
    view = read_pod(pod(status={"containerStatuses": statuses}))
    assert (view.reason, view.message) == ("Error", "no such file")


# Jobs.


def a_job(status: Object | None = None, metadata: Object | None = None, **spec: Any) -> Object:
    template = {"spec": {"schedulerName": "chakra"}}
    return {
        "metadata": {"namespace": "ns", "name": "j", "uid": "u", **(metadata or {})},
        "spec": {"template": template, **spec},
        "status": status,
    }


def test_a_job_has_its_scheduler_its_parallelism_and_whether_it_is_suspended() -> None:
    view = read_job(a_job())
    assert (view.scheduler, view.parallelism, view.suspended, view.end) == ("chakra", 1, False, "")
    assert (view.started_at, view.deleting, view.labels) == (None, False, {})
    view = read_job(a_job(None, {"deletionTimestamp": "2026-11-21T15:00:00Z"}, parallelism=0, suspend=True))
    assert (view.parallelism, view.suspended, view.deleting) == (0, True, True)


def test_a_job_is_over_when_a_condition_says_so_and_is_true() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    view = read_job(
        a_job(
            {
                "conditions": [{"type": "Suspended", "status": "False"}, failed],
                "startTime": "1970-01-01T00:01:00Z",
            }
        )
    )
    assert (view.end, view.end_reason, view.end_message) == ("Failed", "BackoffLimitExceeded", "too often")
    assert view.started_at == 60
    assert read_job(a_job({"conditions": [{"type": "Complete", "status": "True"}]})).end == "Complete"
    for condition in ({"type": "Complete", "status": "False"}, {"type": "FailureTarget", "status": "True"}):
        assert read_job(a_job({"conditions": [condition]})).end == ""


# Times.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T00:00:10.500000Z", 10.5),
        ("1970-01-01T00:00:10.5Z", 10.5),
        ("1970-01-01T00:00:10.123456789Z", 10.123456789),
        (None, None),
        ("", None),
    ],
)
def test_a_time_is_read_with_any_fraction_of_a_second(text: str | None, seconds: float | None) -> None:
    assert timestamp(text) == seconds


@given(st.integers(0, 2**32 * 10**6))
def test_every_time_of_the_api_is_read(micros: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)
    assert timestamp(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")) == pytest.approx(micros / 10**6, abs=1e-6)
    assert timestamp(moment.strftime("%Y-%m-%dT%H:%M:%SZ")) == micros // 10**6


# Sharing.


def test_what_pods_have_in_common_is_kept_once() -> None:
    labels = {"starburst.io/job": "j"}
    spec = {
        "nodeName": "n",
        "nodeSelector": {"zone": "z"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "containers": [container({"cpu": "1"})],
    }
    text = json.dumps(pod(metadata={"labels": labels}, spec=spec))
    one, other = read_pod(json.loads(text)), read_pod(json.loads(text))
    for shared in (
        "namespace",
        "labels",
        "annotations",
        "node",
        "requests",
        "selector",
        "rules",
        "host_ports",
    ):
        assert getattr(one, shared) is getattr(other, shared), shared
