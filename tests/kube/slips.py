"""Slips of the pen in manifests that a server refuses: a Job in which one thing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.translator.manifests import job

OF_NODE = {"fieldRef": {"fieldPath": "spec.nodeName"}}


def _env(**source: Any) -> list[dict[str, Any]]:
    return [{"name": "A", **source}]


def _volume(**source: Any) -> list[dict[str, Any]]:
    return [{"name": "v", **source}]


def slips() -> Iterator[tuple[str, dict[str, Any]]]:
    """What is wrong, and the manifest."""
    yield "GPU in requests only", _gpus_requested()
    for what, path, value in (
        ("container without name", "CONTAINER/name", None),
        ("container without image", "CONTAINER/image", None),
        ("container name in capitals", "CONTAINER/name", "Main"),
        ("label with a space", "metadata/labels", {"team": "a b"}),
        ("label that is a number", "metadata/labels", {"build": 12}),
        ("label that is a boolean", "metadata/labels", {"gpu": True}),
        ("label of the template with a placeholder", "spec/template/metadata", {"labels": {"a": "<me>"}}),
        ("annotation that is a number", "spec/template/metadata", {"annotations": {"port": 80}}),
        ("mount of a volume that is not there", "CONTAINER/volumeMounts", [{"name": "x", "mountPath": "/x"}]),
        ("claimname", "POD/volumes", _volume(persistentVolumeClaim={"claimname": "data"})),
        ("two sources", "POD/volumes", _volume(emptyDir={}, hostPath={"path": "/a"})),
        ("hostPath without path", "POD/volumes", _volume(hostPath={})),
        ("hostPath of an unknown type", "POD/volumes", _volume(hostPath={"path": "/a", "type": "Dir"})),
        ("volume name in capitals", "POD/volumes", [{"name": "Data", "emptyDir": {}}]),
        ("one volume twice", "POD/volumes", [*_volume(emptyDir={}), *_volume(emptyDir={})]),
        ("size of an emptyDir", "POD/volumes", _volume(emptyDir={"sizeLimit": "lots"})),
        ("medium of an emptyDir", "POD/volumes", _volume(emptyDir={"medium": "RAM"})),
        ("defaultMode in text", "POD/volumes", _volume(configMap={"name": "c", "defaultMode": "0755"})),
        ("defaultMode too large", "POD/volumes", _volume(configMap={"name": "c", "defaultMode": 7777})),
        ("secretkeyRef", "CONTAINER/env", _env(valueFrom={"secretkeyRef": {"name": "s", "key": "k"}})),
        ("key without name", "CONTAINER/env", _env(valueFrom={"secretKeyRef": {"key": "k"}})),
        (
            "value and valueFrom",
            "CONTAINER/env",
            _env(value="1", valueFrom={"fieldRef": {"fieldPath": "spec.nodeName"}}),
        ),
        ("unknown fieldPath", "CONTAINER/env", _env(valueFrom={"fieldRef": {"fieldPath": "spec.nodename"}})),
        ("value that is a number", "CONTAINER/env", _env(value=1)),
        ("Allways", "CONTAINER/imagePullPolicy", "Allways"),
        ("hostNetwork yes", "POD/hostNetwork", "yes"),
        ("restartPolicy never", "POD/restartPolicy", "never"),
        ("dnsPolicy", "POD/dnsPolicy", "Cluster"),
        ("port too large", "CONTAINER/ports", [{"containerPort": 70_000}]),
        ("protocol", "CONTAINER/ports", [{"containerPort": 80, "protocol": "tcp"}]),
        ("port in text", "CONTAINER/ports", [{"containerPort": "80"}]),
        ("user in text", "POD/securityContext", {"runAsUser": "1000"}),
        ("account in capitals", "POD/serviceAccountName", "Robot_1"),
        ("toleration without key", "POD/tolerations", [{"operator": "Equal", "value": "a"}]),
        ("relative mountPath", "CONTAINER/workingDir", 7),
        ("negative backoffLimit", "spec/backoffLimit", -1),
        ("ttl in text", "spec/ttlSecondsAfterFinished", "1h"),
        ("probe without handler", "CONTAINER/startupProbe", {"periodSeconds": 5}),
    ):
        yield what, job(path, value)


def _gpus_requested() -> dict[str, Any]:
    return job("CONTAINER/resources", {"requests": {"nvidia.com/gpu": 1, "cpu": 1}})
