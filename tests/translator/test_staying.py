"""A job that no cloud could run stays on its Kubernetes cluster, and says why; nothing else is held back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from starburst.app.config import parse_config
from starburst.app.wiring.stored import intake_rules
from starburst.domain.job import CloudChoice, Job
from tests.translator.manifests import GOOD_JOB, errors, job, read_one
from translator.carried import Bucket, Carried
from translator.errors import ManifestErrors
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_manifests

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


def test_a_mapped_claim_leaves() -> None:
    found = read_one(CLAIM, native=True, carries=Carried({"pvc/data": Bucket("s3://data")}))
    assert found.job.cloud is CloudChoice.AUTO
    assert found.job.stays == ""


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("POD/initContainers", [{"name": "fetch", "image": "a"}], "the init container fetch"),
        ("POD/hostNetwork", True, "hostNetwork"),
        ("POD/volumes", [{"name": "v", "csi": {"driver": "x.csi"}}], "CSI x.csi"),
        ("POD/volumes", [{"name": "v", "secret": {"secretName": "keys"}}], "Secret keys"),
        ("CONTAINER/command", None, "the image's own command"),
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
