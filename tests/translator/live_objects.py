"""Objects as an API server returns them, and what adopting them gives."""

from __future__ import annotations

import copy
import json
from typing import Any

from starburst.domain.job import Submission
from translator.errors import ManifestErrors
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
