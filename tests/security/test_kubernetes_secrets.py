"""Secrets and everybody's checkpoints on a Kubernetes cluster are had by no other name or field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from starburst.domain.job import ANYBODY, OWNER, Submitter
from tests.security.test_kubernetes import RULES, a_manifest, errors, fields
from translator.manifests.tenancy import Tenancy, rule

# --- Secrets ----------------------------------------------------------------------------------------------


def _volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def test_a_granted_name_in_a_field_that_the_server_ignores_hides_no_other() -> None:
    decoy = {"secretName": "wandb", "name": "crown-jewels"}
    (error,) = errors(a_manifest(_volume(projected={"sources": [{"secret": decoy}]}), {}))
    assert error.value == "crown-jewels"


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        ({}, {"envFrom": [{"secretRef": {"name": "{}"}}]}),
        ({}, {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "{}", "key": "k"}}}]}),
        ({"imagePullSecrets": [{"name": "{}"}]}, {}),
        (_volume(secret={"secretName": "{}"}), {}),
        (_volume(projected={"sources": [{"secret": {"name": "{}"}}]}), {}),
        (_volume(projected={"sources": [{"secret": {"secretName": None, "name": "{}"}}]}), {}),
        (_volume(secret={"name": None, "secretName": "{}"}), {}),
        (_volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "{}"}}), {}),
        (_volume(csi={"driver": "d", "volumeAttributes": {"secretName": "{}"}}), {}),
        (
            {"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "{}", "optional": True}}]}]},
            {},
        ),
    ],
)
def test_a_secret_is_used_only_if_queue_or_token_name_it_however_it_is_asked_for(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    def asking(name: str) -> Mapping[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(a_manifest(pod, container)).replace("{}", name))
        return found

    (error,) = errors(asking("crown-jewels"))
    assert error.value == "crown-jewels"
    assert errors(asking("wandb")) == []
    assert len(errors(asking("wandb"), queue="other")) == 1
    assert errors(asking("mine"), Submitter(secrets=("mine",))) == []
    assert errors(asking("crown-jewels"), OWNER) == []


def test_what_a_kubernetes_user_may_get_is_asked_of_the_cluster_and_does_not_leave_it() -> None:
    manifest = a_manifest({}, {"envFrom": [{"secretRef": {"name": "hers"}}]})
    ada = Submitter(kubernetes_user="ada")
    assert rule(RULES, manifest, "papers", ada).to_ask == ("hers",)
    assert errors(manifest, ada) == []
    (error,) = errors(manifest, ada, leaves=True)
    assert "starburst.io/cloud: never" in error.mend


# --- checkpoints ------------------------------------------------------------------------------------------


def test_a_mount_of_a_volume_that_the_manifest_does_not_have_is_refused_to_everybody() -> None:
    """Starburst adds the volume with everybody's checkpoints under that name."""
    mount = a_manifest({}, {"volumeMounts": [{"name": "starburst-checkpoints", "mountPath": "/all"}]})
    for submitter in (ANYBODY, OWNER):
        assert fields(mount, submitter) == ["containers[0].volumeMounts[0].name"]
    declared = _volume(emptyDir={})
    declared["volumes"][0]["name"] = "starburst-checkpoints"
    assert fields(a_manifest(declared), OWNER) == ["volumes[0].name"]


@pytest.mark.parametrize(
    ("checkpoints", "source"),
    [
        ({"persistentVolumeClaim": {"claimName": "ckpt"}}, {"persistentVolumeClaim": {"claimName": "ckpt"}}),
        (
            {"persistentVolumeClaim": {"claimName": "ckpt"}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"dataSource": {"name": "ckpt"}}}}},
        ),
        ({"nfs": {"server": "f", "path": "/c"}}, {"nfs": {"server": "f", "path": "/c/others-job"}}),
        ({"nfs": {"server": "f", "path": "/c"}}, {"nfs": {"server": "f", "path": "/"}}),
        ({"nfs": {"server": "f", "path": "/c"}}, {"nfs": {"server": "f", "path": "/x/../c"}}),
        ({"hostPath": {"path": "/c"}}, {"hostPath": {"path": "//c/"}}),
    ],
)
def test_the_volume_of_all_checkpoints_is_not_had_under_another_name(
    checkpoints: dict[str, Any], source: dict[str, Any]
) -> None:
    rules = Tenancy("jobs", pod_security="privileged", checkpoints=checkpoints)
    assert errors(a_manifest(_volume(**source)), rules=rules)
    others = json.loads(json.dumps(source).replace("ckpt", "mine").replace("/c", "/d"))
    if "/" not in (others.get("nfs") or {}).values() and ".." not in str(others):
        assert not errors(a_manifest(_volume(**others)), rules=rules)
