"""Jobs and Pods found in a cluster become what their users wrote, with the server's own taken off."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.domain.constraints import Rules, Toleration
from starburst.domain.job import Adopted, CloudChoice, Submission
from starburst.domain.resources import Resources
from translator.errors import ManifestErrors
from translator.field import ONLY_THE_CLUSTER
from translator.intake.rules import IntakeRules
from translator.manifests.live_object import read_object

#: As an API server returns a Job that was made with kubectl.
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "train",
        "namespace": "vision",
        "uid": "8f6f0f5e-0b0f-4a54-9a52-2f4b3a1d7c11",
        "resourceVersion": "4711",
        "generation": 1,
        "creationTimestamp": "2026-05-04T03:02:01Z",
        "labels": {"app": "train", "starburst.io/queue": "nlp", "starburst.io/user": "ada"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": '{"kind":"Job"}',
            "starburst.io/max-wait": "2h",
            "starburst.io/job": "train-x1y2z",
            "starburst.io/attempt": "3",
            "starburst.io/nodes": "",
            "starburst.io/decision": "waits up to 2 h for 2 GPUs",
            "starburst.io/active-deadline": "600",
        },
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
    },
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "8f6f0f5e"}},
        "suspend": True,
        "template": {
            "metadata": {
                "creationTimestamp": None,
                "labels": {
                    "app": "train",
                    "batch.kubernetes.io/controller-uid": "8f6f0f5e",
                    "batch.kubernetes.io/job-name": "train",
                    "controller-uid": "8f6f0f5e",
                    "job-name": "train",
                },
            },
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "trainer:1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python3", "train.py"],
                        "resources": {
                            "limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
                            "requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
                        },
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File",
                    }
                ],
                "dnsPolicy": "ClusterFirst",
                "restartPolicy": "Never",
                "schedulerName": "chakra",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30,
            },
        },
    },
    "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
}

#: As an API server returns a Pod that waits for its scheduler.
POD: dict[str, Any] = {
    "metadata": {
        "name": "probe",
        "namespace": "default",
        "uid": "1d0b7a2c",
        "resourceVersion": "12",
        "creationTimestamp": "2026-05-04T03:02:01Z",
        "annotations": {"starburst.io/cloud": "auto", "starburst.io/queue": "nlp"},
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "probe",
                "command": ["probe"],
                "resources": {"requests": {"cpu": "2"}},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "volumeMounts": [
                    {
                        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        "name": "kube-api-access-x7v2p",
                        "readOnly": True,
                    }
                ],
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "nodeName": "n1",
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 1000,
        "restartPolicy": "OnFailure",
        "schedulerName": "chakra",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"key": "spot", "operator": "Exists"},
            *(
                {"key": f"node.kubernetes.io/{word}", "operator": "Exists", "effect": "NoExecute"}
                | {"tolerationSeconds": 300}
                for word in ("not-ready", "unreachable")
            ),
        ],
        "volumes": [
            {
                "name": "kube-api-access-x7v2p",
                "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
            }
        ],
    },
    "status": {"phase": "Pending", "qosClass": "Burstable"},
}


def changed(obj: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(obj)
    *parents, last = path.split("|")
    target = changed
    for key in parents:
        target = target.setdefault(key, {})
    target[last] = value
    return changed


def adopt(obj: dict[str, Any], user: str | None = None, *, may_stay: bool = True) -> Submission:
    rules = IntakeRules(native=True, may_stay=may_stay)
    return read_object(obj, job_id="adopted-1", user=user, rules=rules)


def errors(obj: dict[str, Any]) -> list[str]:
    try:
        adopt(obj, may_stay=False)
    except ManifestErrors as bad:
        return str(bad).split("\n")
    return []


def manifest_of(obj: dict[str, Any]) -> Any:
    return json.loads(adopt(obj).workload.manifest or "")


def test_a_job_is_adopted_under_the_id_it_is_given() -> None:
    found = adopt(JOB)
    assert (found.job.id, found.job.name, found.job.user, found.job.queue) == (
        "adopted-1",
        "train",
        "ada",
        "nlp",
    )
    assert found.job.tasks == (Resources.of(1, 4, 16),) * 2
    assert (found.job.max_wait_s, found.job.cloud) == (7200, CloudChoice.AUTO)
    assert found.workload.adopted == Adopted("Job", "vision", "train", "8f6f0f5e-0b0f-4a54-9a52-2f4b3a1d7c11")
    assert found.notes == ()


def test_of_a_job_remains_what_its_user_wrote() -> None:
    manifest = manifest_of(JOB)
    assert manifest["metadata"] == {
        "name": "train",
        "namespace": "vision",
        "labels": {"app": "train", "starburst.io/queue": "nlp", "starburst.io/user": "ada"},
        "annotations": {"starburst.io/max-wait": "2h"},
    }
    assert manifest["spec"]["template"]["metadata"] == {"labels": {"app": "train"}}
    assert manifest["spec"]["template"]["spec"] == JOB["spec"]["template"]["spec"]
    assert not manifest["spec"].keys() & {"selector", "suspend"}
    assert "status" not in manifest


def test_a_deadline_that_was_taken_off_while_the_job_waits_is_put_back() -> None:
    found = adopt(JOB)
    assert found.workload.time_limit_s == 600
    assert json.loads(found.workload.manifest or "")["spec"]["activeDeadlineSeconds"] == 600


def test_a_selector_that_the_user_gave_is_kept() -> None:
    manifest = manifest_of(changed(JOB, "spec|manualSelector", True))
    assert manifest["spec"]["selector"] == JOB["spec"]["selector"]


def test_a_pod_is_adopted_without_what_admission_gave_it() -> None:
    found = adopt(POD, user="bob")
    assert found.notes == ()
    assert (found.job.user, found.job.tasks) == ("bob", (Resources.of(0, 2),))
    assert found.job.rules == Rules(tolerations=(Toleration("spot", "Exists"),))
    assert found.workload.adopted == Adopted("Pod", "default", "probe", "1d0b7a2c")
    spec = manifest_of(POD)["spec"]
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert not spec.keys() & {"volumes", "nodeName", "priority"}
    assert "volumeMounts" not in spec["containers"][0]


def test_an_object_of_a_list_need_not_say_what_it_is() -> None:
    nameless = {key: value for key, value in JOB.items() if key not in ("kind", "apiVersion")}
    assert manifest_of(nameless) == manifest_of(JOB)


def test_reading_leaves_the_object_as_it_is() -> None:
    before = copy.deepcopy((JOB, POD))
    adopt(JOB)
    adopt(POD)
    assert before == (JOB, POD)


def test_what_was_adopted_can_be_submitted_and_adopted_again() -> None:
    for obj in (JOB, POD):
        once = manifest_of(obj)
        again = adopt({**once, "metadata": {**once["metadata"], "uid": obj["metadata"]["uid"]}}, "ada")
        assert again == adopt(obj, "ada")


@pytest.mark.parametrize(
    ("obj", "line"),
    [
        (
            changed(
                JOB,
                "spec|template|spec|volumes",
                [{"name": "d", "persistentVolumeClaim": {"claimName": "x"}}],
            ),
            "Job vision/train: spec.template.spec.volumes[0].persistentVolumeClaim: "
            f"does not go along to a cloud; {ONLY_THE_CLUSTER}",
        ),
        (
            changed(JOB, "spec|completions", 10),
            "Job vision/train: spec.completions: differs from parallelism, which is 2: a cloud runs all "
            f"tasks at once; {ONLY_THE_CLUSTER}",
        ),
        (
            changed(POD, "spec|restartPolicy", "Always"),
            'Pod default/probe: spec.restartPolicy: "Always": a batch job ends; write Never',
        ),
        (
            changed(POD, "metadata|ownerReferences", [{"kind": "Job", "name": "train", "controller": True}]),
            "Pod default/probe: metadata: is a pod of Job train; let that be adopted",
        ),
        (
            changed(POD, "metadata|annotations|starburst.io/max-wiat", "1h"),
            'Pod default/probe: metadata.annotations["starburst.io/max-wiat"]: "1h": '
            "Starburst has no such key; did you mean max-wait?",
        ),
        (
            changed(POD, "kind", "Service"),
            'Service default/probe: kind: "Service": not a batch job; '
            "Starburst takes batch/v1 Job and v1 Pod",
        ),
    ],
)
def test_what_cannot_be_adopted_is_said_in_one_line(obj: dict[str, Any], line: str) -> None:
    assert errors(obj) == [line]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PATHS = [
    "metadata",
    "metadata|labels",
    "metadata|annotations",
    "metadata|ownerReferences",
    "metadata|uid",
    "spec",
    "spec|template",
    "spec|containers",
    "spec|tolerations",
    "spec|volumes",
    "status",
    "kind",
]


@settings(max_examples=60)
@given(st.sampled_from([JOB, POD]), st.sampled_from(PATHS), values)
def test_whatever_stands_in_an_object_no_traceback_comes_of_it(
    obj: dict[str, Any], path: str, value: object
) -> None:
    for line in errors(changed(obj, path, value)):
        assert ": " in line


def test_the_accounts_secret_that_servers_before_1_21_mount_is_no_wish_of_the_user() -> None:
    mounted = [{"name": "default-token-8xkqz", "secret": {"secretName": "default-token-8xkqz"}}]
    old = changed(POD, "spec|volumes", mounted)
    old["spec"]["containers"][0]["volumeMounts"] = [{"name": "default-token-8xkqz", "mountPath": "/var/run"}]
    assert errors(old) == []
    spec = manifest_of(old)["spec"]
    assert "volumes" not in spec
    assert "volumeMounts" not in spec["containers"][0]


def test_a_secret_that_the_user_mounts_is_one() -> None:
    own = [{"name": "keys", "secret": {"secretName": "default-token-8xkqz"}}]
    assert errors(changed(POD, "spec|volumes", own)) != []


def test_an_adopted_job_is_not_elastic_as_its_completions_are_fixed() -> None:
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/elastic": "true"}
    found = read_object({**JOB, "metadata": {**JOB["metadata"], "annotations": annotated}}, job_id="a")
    assert found.job.least_tasks == 0
    assert any("keeps its completions" in note for note in found.notes)


def test_retries_of_an_adopted_job_are_its_backoff_limits_and_that_is_said() -> None:
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/retries": "3"}
    found = read_object({**JOB, "metadata": {**JOB["metadata"], "annotations": annotated}}, job_id="a")
    assert found.job.retries == 0
    assert any("its own backoffLimit is kept" in note for note in found.notes)
    plain = read_object(JOB, job_id="a")  # a gang with a backoffLimit
    assert (len(plain.job.tasks), plain.job.retries) == (2, 0)
    assert not any("backoffLimit" in note for note in plain.notes)


def test_what_stands_for_several_jobs_or_names_others_is_not_adopted() -> None:
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/after-ok": "prep"}
    (error,) = errors({**JOB, "metadata": {**JOB["metadata"], "annotations": annotated}})
    assert "name jobs of Starburst; give it to starburst submit" in error
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/array": "0-9"}
    single = changed(changed(JOB, "spec|parallelism", 1), "spec|completions", 1)
    told = errors({**single, "metadata": {**JOB["metadata"], "annotations": annotated}})
    assert any("cannot be split into an array; give it to starburst submit" in each for each in told)


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_job_by_turns_is_as_large_as_its_parallelism_and_stays(mode: str) -> None:
    several = changed(changed(JOB, "spec|completions", 10), "spec|completionMode", mode)
    found = adopt(several)
    assert (len(found.job.tasks), found.job.array, found.job.cloud) == (2, None, CloudChoice.NEVER)
    assert found.workload.manifest is not None
    spec = json.loads(found.workload.manifest)["spec"]
    assert (spec["completions"], spec["completionMode"]) == (10, mode), "as its user wrote it"


def test_fields_of_the_newest_servers_are_taken_for_the_cluster() -> None:
    """Kubernetes 1.36: JobSpec.scheduling, PodSpec.evictionResponders; native sidecars (1.29) as ever."""
    newest = changed(JOB, "spec|scheduling", {"policy": {"gang": {}}})
    spec = newest["spec"]["template"]["spec"]
    spec["evictionResponders"] = [{"name": "example.org/checkpointer", "priority": 1}]
    spec["initContainers"] = [{"name": "proxy", "image": "envoy", "restartPolicy": "Always"}]
    spec["schedulingGates"] = [{"name": "example.org/quota"}]
    newest["spec"] |= {
        "backoffLimitPerIndex": 1,
        "maxFailedIndexes": 2,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": []}]},
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "ttlSecondsAfterFinished": 5,
        "suspend": True,
    }
    found = adopt(changed(newest, "metadata|annotations|starburst.io/cloud", "never"))
    assert found.workload.manifest is not None
    kept = json.loads(found.workload.manifest)["spec"]
    assert kept["scheduling"] == newest["spec"]["scheduling"]
    assert "schedulingGates" not in kept["template"]["spec"], "they are gone when it runs"
    group = changed(JOB, "spec|template|spec|schedulingGroup", {"podGroupName": "g"})
    assert not errors(group)


@pytest.mark.parametrize(
    ("manager", "taken"),
    [
        ("kubernetes.io/job-controller", True),
        ("starburst.io/starburst", True),
        ("kueue.x-k8s.io/multikueue", False),
    ],
)
def test_a_job_of_another_controller_is_left_alone(manager: str, taken: bool) -> None:
    told = errors(changed(JOB, "spec|managedBy", manager))
    assert any("another controller is to run this job" in each for each in told) is not taken
