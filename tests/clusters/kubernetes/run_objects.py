"""Runs, and the objects that are made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starburst.clusters.kubernetes.manifest import (
    job_object,
)
from starburst.core.model.actions import Slot
from starburst.domain.job import Job, Workload
from starburst.domain.resources import Resources
from starburst.runs.ports import Run

TRAIN: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "train",
        "namespace": "team",
        "labels": {"app": "train", "starburst.io/queue": "big", "job-name": "copied"},
        "annotations": {
            "note": "mine",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    },
    "spec": {
        "backoffLimit": 3,
        "activeDeadlineSeconds": 60,
        "selector": {"matchLabels": {"controller-uid": "x"}},
        "podFailurePolicy": {"rules": [{"action": "Ignore"}]},
        "template": {
            "metadata": {"labels": {"app": "train", "controller-uid": "x"}, "annotations": {"sidecar": "no"}},
            "spec": {
                "restartPolicy": "OnFailure",
                "schedulerName": "default-scheduler",
                "serviceAccountName": "robot",
                "somethingNew": {"kept": True},
                "volumes": [{"name": "data", "emptyDir": {}}],
                "initContainers": [{"name": "fetch", "image": "fetcher"}],
                "containers": [
                    {
                        "name": "main",
                        "image": "trainer",
                        "env": [
                            {"name": "LR", "value": "$(STARBURST_RANK)"},
                            {"name": "STARBURST_RANK", "value": "mine"},
                        ],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    },
                    {"name": "side", "image": "other"},
                ],
            },
        },
    },
}


def run(
    manifest: Any = TRAIN, *, tasks: int = 1, attempt: int = 2, job_id: str = "train-abcde", **workload: Any
) -> Run:
    job = Job(job_id, "train", (Resources(1),) * tasks, queue="big")
    slots = tuple(Slot(rank, f"n{rank}", Resources(1)) for rank in reversed(range(tasks)))
    text = None if manifest is None else json.dumps(manifest)
    return Run(job, attempt, slots, Workload(manifest=text, **workload))


def made(
    run: Run,
    *,
    indexed: bool = False,
    checkpoints: Any = None,
    decision: str = "because",
    reporting: Mapping[str, str] = {},
) -> dict[str, Any]:
    return job_object(
        run,
        namespace="team",
        controller="me",
        decision=decision,
        indexed=indexed,
        checkpoints=checkpoints,
        reporting=reporting,
    )


def env_of(made: dict[str, Any], container: int = 0) -> dict[str, Any]:
    listed = made["spec"]["template"]["spec"]["containers"][container]["env"]
    assert len({each["name"] for each in listed}) == len(listed)
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in listed}
