"""Jobs with the fields of newer servers, as such a server stores them (API reference of Kubernetes 1.34)."""

from __future__ import annotations

from typing import Any

from tests.clusters.kubernetes.scene import a_job
from tests.kube_unit.store import Object

#: The reason why a pod's failure is none of its program's.
DISRUPTED: Object = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
#: By field of the spec: since which release it is on by default, and a value.
FIELDS: dict[str, tuple[int, Any]] = {
    "completionMode": (22, "Indexed"),
    "podFailurePolicy": (
        26,
        {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]},
                },
                DISRUPTED,
                {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [0, 1]}},
            ]
        },
    ),
    "backoffLimitPerIndex": (29, 2),
    "maxFailedIndexes": (29, 3),
    "podReplacementPolicy": (29, "Failed"),
    "successPolicy": (31, {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}),
}


def sidecar() -> Object:
    """An init container that stays (1.29), with the probes and hooks that it alone may have."""
    return {
        "name": "proxy",
        "image": "proxy",
        "restartPolicy": "Always",
        "startupProbe": {"tcpSocket": {"port": 1}, "failureThreshold": 30},
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    }


def newer_job() -> Object:
    """A user's Job with all of these fields, and a sidecar."""
    made = a_job(args=("30", "0"), **{name: value for name, (_, value) in FIELDS.items()})
    template = made["spec"]["template"]["spec"]
    template["initContainers"] = [sidecar(), {"name": "fetch", "image": "fetch", "command": ["true"]}]
    template["resources"] = {"limits": {"cpu": "2"}}
    template["hostnameOverride"] = "trainer"
    return made
