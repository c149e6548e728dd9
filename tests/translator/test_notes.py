"""What of a manifest is not kept on an embedded cluster, and what its submitter reads of that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translator.manifests import CONTAINER, job, pod, read_one


@pytest.mark.parametrize(
    ("manifest", "note"),
    [
        (
            job("metadata/namespace", "vision"),
            "metadata.namespace: Starburst has no namespaces; sort jobs with starburst.io/queue",
        ),
        (
            job("POD/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution", [{"weight": 1}]),
            "spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: "
            "preferences are not considered",
        ),
        (
            job("POD/topologySpreadConstraints", [{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]),
            "spec.template.spec.topologySpreadConstraints[0]: preferences are not considered",
        ),
        (
            job("POD/priorityClassName", "high"),
            "spec.template.spec.priorityClassName: priority classes are not used; "
            "set the annotation starburst.io/priority",
        ),
        (
            job("POD/schedulerName", "volcano"),
            "spec.template.spec.schedulerName: Starburst places the job itself",
        ),
        (
            job("POD/serviceAccountName", "robot"),
            "spec.template.spec.serviceAccountName: the job is not given this account's credentials",
        ),
        (
            job("POD/securityContext", {"runAsUser": 1000}),
            "spec.template.spec.securityContext: is not passed on; the command runs as the user of its node",
        ),
        (
            job("POD/volumes", [{"name": "shm", "emptyDir": {"medium": "Memory"}}]),
            "spec.template.spec.volumes[0]: not mounted by the embedded cluster; paths are the host's",
        ),
        (
            job("CONTAINER/livenessProbe", {"exec": {"command": ["true"]}}),
            f"{CONTAINER}.livenessProbe: a command that hangs is not restarted; "
            "set activeDeadlineSeconds to end it",
        ),
        (
            job("CONTAINER/resources/limits/ephemeral-storage", "10Gi"),
            f'{CONTAINER}.resources.limits["ephemeral-storage"]: '
            "local disk is counted on a Kubernetes cluster only",
        ),
        (
            pod(restartPolicy=None),
            "spec.restartPolicy: is absent, which is Always to Kubernetes; "
            "taken as Never, for a batch job ends",
        ),
    ],
)
def test_what_is_not_kept_is_said(manifest: dict[str, Any], note: str) -> None:
    assert read_one(manifest).notes == (note,)
