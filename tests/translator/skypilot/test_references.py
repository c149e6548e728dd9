"""Values from elsewhere: ConfigMaps, Secrets, and what a container may ask about itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translator.manifests import job
from tests.translator.skypilot.goldens import CLUSTER
from translator.fidelity import FidelityLevel
from translator.manifests.references import CONFIG_MAP, SECRET, Reference
from translator.tasks.skypilot import to_skypilot

TOKEN = {"secretKeyRef": {"name": "hugging-face", "key": "token"}}


def with_env(*variables: dict[str, Any], **container: Any) -> dict[str, Any]:
    manifest = job("CONTAINER/env", list(variables))
    manifest["spec"]["template"]["spec"]["containers"][0] |= container
    return manifest


def test_values_of_secrets_are_in_the_secrets_of_the_task_and_nowhere_else():
    found = to_skypilot(
        with_env({"name": "TOKEN", "valueFrom": TOKEN}, {"name": "AUTH", "value": "Bearer $(TOKEN)"}),
        resolve=CLUSTER.get,
    )
    assert found.task["secrets"] == {"TOKEN": "hf_SECRET1"}
    assert "export AUTH='Bearer '\"${TOKEN}\"" in found.task["run"]
    assert "AUTH" not in found.task.get("envs", {})
    assert "SECRET1" not in repr(found)
    assert found.without_secrets["secrets"] == {"TOKEN": None}


def test_without_a_cluster_a_secret_is_refused_by_name_and_left_for_the_launch():
    found = to_skypilot(with_env({"name": "TOKEN", "valueFrom": TOKEN}))
    (line,) = found.refused()
    assert line.field == "spec.template.spec.containers[0].env[0].valueFrom.secretKeyRef"
    assert "Secret hugging-face" in line.text
    assert "--secret TOKEN" in line.text
    assert found.task["secrets"] == {"TOKEN": None}


def test_objects_are_looked_up_in_the_namespace_of_the_manifest():
    asked: list[Reference] = []

    def resolve(reference: Reference) -> dict[str, str]:
        asked.append(reference)
        return {"a": "b"}

    manifest = with_env(envFrom=[{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}])
    manifest["metadata"]["namespace"] = "lab"
    to_skypilot(manifest, resolve=resolve)
    assert asked == [Reference(CONFIG_MAP, "lab", "c"), Reference(SECRET, "lab", "s")]


def test_what_env_says_goes_before_what_env_from_brings():
    found = to_skypilot(
        with_env({"name": "mode", "value": "slow"}, envFrom=[{"configMapRef": {"name": "settings"}}]),
        resolve=CLUSTER.get,
    )
    assert found.task["envs"]["mode"] == "slow"


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            [{"name": "dotted.name", "valueFrom": TOKEN}],
            "a Secret's value cannot be given as dotted.name; choose another name",
        ),
        ([{"name": "T", "valueFrom": {"fileKeyRef": {"path": "x"}}}], "this source of values is not known"),
    ],
)
def test_what_would_go_wrong_is_refused(variables, text):
    (line,) = to_skypilot(with_env(*variables), resolve=CLUSTER.get).refused()
    assert line.text.startswith(text)


def test_a_secret_that_the_shell_of_skypilot_would_change_is_refused():
    found = to_skypilot(with_env({"name": "T", "valueFrom": TOKEN}), resolve=lambda _: {"token": "a\n^b"})
    (line,) = found.refused()
    assert line.text == "the secret T has a line that begins with ^, which SkyPilot changes"


def test_a_secret_that_is_set_anew_before_anyone_uses_it_is_no_secret_any_more():
    found = to_skypilot(
        with_env({"name": "T", "valueFrom": TOKEN}, {"name": "T", "value": "x"}), resolve=CLUSTER.get
    )
    assert (found.task["envs"], found.task.get("secrets")) == ({"T": "x"}, None)


@pytest.mark.parametrize(
    ("divisor", "value"), [("1", "16Gi"), ("1Mi", "16384"), ("0", "16Gi"), ("10Gi", "2"), (None, "16Gi")]
)
def test_amounts_are_given_in_units_of_the_divisor_and_rounded_up(divisor, value):
    reference = {"resource": "limits.memory", "divisor": divisor}
    found = to_skypilot(with_env({"name": "M", "valueFrom": {"resourceFieldRef": reference}}))
    assert found.task["envs"]["M"] == (str(16 * 2**30) if value == "16Gi" else value)


def test_a_login_for_a_private_image_goes_to_the_secrets_by_skypilots_names():
    manifest = job("POD/imagePullSecrets", [{"name": "registry"}])
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.lab.example:5000/a/b:1"
    assert to_skypilot(manifest, resolve=CLUSTER.get).task["secrets"] == {
        "SKYPILOT_DOCKER_USERNAME": "robot",
        "SKYPILOT_DOCKER_PASSWORD": "hunter2",
        "SKYPILOT_DOCKER_SERVER": "registry.lab.example:5000",
    }


NO_LOGINS = ["", "no json", "[]", '{"auths": []}', '{"auths": {"docker.io": {"auth": "%"}}}']


@pytest.mark.parametrize("config", NO_LOGINS)
def test_a_login_that_is_none_is_told_by_its_name_alone(config):
    manifest = job("POD/imagePullSecrets", [{"name": "registry"}])
    found = to_skypilot(manifest, resolve=lambda _: {".dockerconfigjson": config})
    (line,) = (line for line in found.report if "imagePullSecrets" in line.field)
    assert (line.verdict, line.text) == (
        FidelityLevel.DROPPED,
        "holds no login of docker.io, or is not needed",
    )
