"""A webhook that is away and a full quota, on a real API server with real kubelets: nothing fails of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.kube.resources import Object
from tests.kube.lab import Lab
from tests.kube.live import Live, give_gpus, job_manifest, live

#: Ten times as fast, so that pauses of 10 and 20 s take one and two.
CONFIG = """
clock:
  speed: 10
policy:
  offload_cpu_only: false
cluster:
  kind: kubernetes
cloud:
  offers: []
"""
AWAY = "failed calling webhook"
NAMES = ("submitted-1", "submitted-2", "applied-1", "applied-2")


def webhook() -> Object:
    """As Kyverno's, with its pods away."""
    service = {"namespace": "default", "name": "away", "path": "/validate"}
    rule = {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "resources": ["jobs"],
        "operations": ["CREATE", "UPDATE"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "away"},
        "webhooks": [
            {
                "name": "validate.away.svc",
                "clientConfig": {"service": service},
                "rules": [rule],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 2,
            }
        ],
    }


def quota() -> Object:
    """No Jobs at all."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": "default"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }


@pytest.fixture
def running(two_kubelets: Lab, tmp_path: Path) -> Iterator[Live]:
    """A Starburst and a Chakra beside the cluster, whose nodes take no pods yet."""
    tmp_path.chmod(0o755)
    give_gpus(two_kubelets, ["node0", "node1"], 8)
    with live(two_kubelets, tmp_path) as starburst:
        starburst.configure(CONFIG)
        starburst.kubectl("cordon", "node0", "node1")
        starburst.up()
        starburst.chakra()
        try:
            yield starburst
        finally:
            starburst.kubectl("uncordon", "node0", "node1")
            starburst.kubectl("delete", "validatingwebhookconfiguration", "away", "--ignore-not-found")
            starburst.kubectl("delete", "quota", "none", "--ignore-not-found")


def test_what_a_webhook_and_a_quota_refuse_for_a_while_runs_afterwards(running: Live) -> None:
    marks = running.root / "marks"
    marks.mkdir()
    manifests = [
        job_manifest(
            name,
            f"echo start >>{marks / name}",
            gpus=2,
            keys={"starburst.io/queue": "default", "starburst.io/cloud": "never"},
            volume=marks,
        )
        for name in NAMES
    ]
    for manifest in manifests[2:]:
        manifest["spec"]["template"]["spec"]["schedulerName"] = "chakra"
    running.apply(manifests[2:])
    running.wait_for("both are taken in", lambda: len(running.jobs()) == 2)
    running.kubectl("apply", "-f", "-", given=json.dumps(webhook()))
    (running.root / "jobs.yaml").write_text("\n---\n".join(map(json.dumps, manifests[:2])))
    running.run("submit", "jobs.yaml", "-o", "name")
    running.kubectl("uncordon", "node0", "node1")

    def told(words: str, names: tuple[str, ...]) -> bool:
        found = {job["name"]: job["id"] for job in running.jobs()}
        return all(words in running.run("explain", found[name]) for name in names)

    running.wait_for("all are told of the webhook", lambda: told(AWAY, NAMES))
    assert not list(marks.iterdir())

    running.kubectl("apply", "-f", "-", given=json.dumps(quota()))
    running.kubectl("delete", "validatingwebhookconfiguration", "away")
    running.wait_for("the submitted ones are told of the quota", lambda: told("exceeded quota", NAMES[:2]))
    assert {job["phase"] for job in running.jobs() if job["name"] in NAMES[:2]} <= {"blocked", "starting"}

    running.kubectl("delete", "quota", "none")
    running.wait_for("all succeed", lambda: {job["phase"] for job in running.jobs()} == {"succeeded"})
    assert {path.name: path.read_text() for path in marks.iterdir()} == dict.fromkeys(NAMES, "start\n")
    events = running.kubectl("get", "events", "--field-selector", "reason=NotStarted", "-o", "name")
    assert events.strip(), "the objects that were applied say it too"
