"""The chart: what it makes, what it asks for, and that the plain manifests are the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema
import pytest
import typer
import yaml

import chakra_plugin.main
import starburst
from starburst.app.config import parse_config
from starburst.app.config.sites import KubernetesConfig
from starburst.cli.main import Subcommands
from starburst.clusters.kubernetes.adoption.offload_rights import ROLE
from starburst.kube.access import (
    CHAKRA,
    CHAKRA_LEASE,
    CHAKRA_PREEMPTION,
    CHAKRA_WORK,
    OPERATOR_KINDS,
    STARBURST,
    STARBURST_IMPERSONATION,
    STARBURST_LEASE,
    STARBURST_WORK,
    Permission,
    offload_permission,
)
from tests.deploy.render import CHART, DEPLOY, NAMESPACE, RELEASE, manifests, objects

Object = dict[str, Any]
#: Every switch of the chart turned the other way.
OTHERWISE: Mapping[str, Any] = {
    "chakra": {"preemption": True, "serviceMonitor": True},
    "starburst": {
        "storageClass": "fast",
        "service": True,
        "replicas": 2,
        "storeSecret": "database",
        "accessMode": "ReadWriteMany",
        "impersonate": {"users": ["ada"], "groups": ["lab"]},
    },
    "imagePullSecrets": [{"name": "login"}],
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "namespaces": [],
}


def pick(found: Iterable[Object], kind: str, name: str) -> Object:
    (item,) = [item for item in found if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return item


def granted(role: Object) -> set[tuple[str, str, str]]:
    """Verb, group and resource, each named: a star would not be equal to anything."""
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def needed(permissions: Iterable[Permission]) -> set[tuple[str, str, str]]:
    return {
        (each.verb, each.group, each.resource + (f"/{each.subresource}" if each.subresource else ""))
        for each in permissions
    }


def command_of(deployment: Object) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return list(container["command"])


# What they may do.


def test_each_program_gets_what_it_needs_and_nothing_else() -> None:
    found = objects()
    assert granted(pick(found, "ClusterRole", "starburst-chakra")) == needed(CHAKRA)
    assert granted(pick(found, "ClusterRole", "starburst-chakra-work")) == needed(CHAKRA_WORK)
    assert granted(pick(found, "ClusterRole", "starburst")) == needed(STARBURST)
    assert granted(pick(found, "ClusterRole", "starburst-work")) == needed((*STARBURST_WORK, *OPERATOR_KINDS))
    assert granted(pick(found, "Role", "starburst-chakra")) == needed(CHAKRA_LEASE)
    assert granted(pick(found, "Role", "starburst")) == needed(STARBURST_LEASE)


def test_chakra_may_delete_pods_only_if_it_preempts() -> None:
    role = pick(objects(OTHERWISE), "ClusterRole", "starburst-chakra-work")
    assert granted(role) == needed((*CHAKRA_WORK, *CHAKRA_PREEMPTION))
    assert needed(CHAKRA_PREEMPTION) == {("delete", "", "pods")}


@pytest.mark.parametrize("name", ["starburst-work", "starburst-chakra-work"])
def test_writes_are_bound_in_the_listed_namespaces_and_nowhere_else(name: str) -> None:
    def bound(values: Mapping[str, Any]) -> list[tuple[str, str | None]]:
        found = [item for item in objects(values) if item["kind"].endswith("Binding")]
        mine = [item for item in found if item["roleRef"]["name"] == name]
        return [(item["kind"], item["metadata"].get("namespace")) for item in mine]

    assert bound({}) == [("RoleBinding", "default")]
    assert bound({"namespaces": ["papers", "lab"]}) == [("RoleBinding", "papers"), ("RoleBinding", "lab")]
    assert bound({"namespaces": []}) == [("ClusterRoleBinding", None)]


def test_in_the_cluster_as_a_whole_they_only_read_and_ask_and_chakra_keeps_volumes_for_claims() -> None:
    writes = {
        (each.verb, each.resource) for each in (*CHAKRA, *STARBURST) if each.verb not in ("list", "watch")
    }
    assert writes == {("create", "subjectaccessreviews"), ("patch", "persistentvolumes")}


def test_only_who_is_named_is_impersonated() -> None:
    assert "starburst-impersonate" not in {item["metadata"]["name"] for item in objects()}
    role = pick(objects(OTHERWISE), "ClusterRole", "starburst-impersonate")
    assert granted(role) == needed(STARBURST_IMPERSONATION)
    assert [rule["resourceNames"] for rule in role["rules"]] == [["ada"], ["lab"]]


def test_the_right_to_leave_is_bound_to_nobody_and_stands_in_a_file_of_its_own_too() -> None:
    for values in ({}, OTHERWISE):
        found = objects(values)
        role = pick(found, "ClusterRole", ROLE)
        assert role == yaml.safe_load((DEPLOY / "leave.yaml").read_text())
        bindings = [item for item in found if item["kind"].endswith("Binding")]
        assert not [item for item in bindings if item["roleRef"]["name"] == ROLE]
    asked = offload_permission("any")
    assert granted(role) == {(asked.verb, asked.group, asked.resource)}


def test_each_changes_its_own_lease_only_and_starburst_reads_chakras() -> None:
    ours = {"starburst-chakra": chakra_plugin.main.LEASE, "starburst": KubernetesConfig().lease_name}
    for role in (item for item in objects() if item["kind"] == "Role"):
        for rule in role["rules"]:
            if "update" in rule["verbs"]:
                assert rule["resourceNames"] == [ours[role["metadata"]["name"]]]
            else:
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == [chakra_plugin.main.LEASE]


def test_no_permission_stands_twice_and_each_says_what_it_is_for() -> None:
    for several in (
        CHAKRA + CHAKRA_WORK + CHAKRA_PREEMPTION + CHAKRA_LEASE,
        STARBURST + STARBURST_WORK + OPERATOR_KINDS + STARBURST_LEASE + STARBURST_IMPERSONATION,
    ):
        assert len(needed(several)) == len(several)
        assert all(each.why.startswith(("to ", "so that ")) for each in several)


def test_roles_are_bound_to_the_accounts_that_the_pods_run_under() -> None:
    found = objects()
    for binding in (item for item in found if item["kind"].endswith("Binding")):
        (subject,) = binding["subjects"]
        assert subject["namespace"] == NAMESPACE
        pick(found, "ServiceAccount", subject["name"])
        role = pick(found, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        suffixes = ("", "-work", "-impersonate")
        assert role["metadata"]["name"] in [subject["name"] + suffix for suffix in suffixes]
    for name in ("starburst", "starburst-chakra"):
        pods = pick(found, "Deployment", name)["spec"]["template"]["spec"]
        assert pods["serviceAccountName"] == name


# What runs.


@pytest.mark.parametrize("values", [{}, OTHERWISE])
def test_chakra_understands_its_command_line(values: Mapping[str, Any]) -> None:
    words = command_of(pick(objects(values), "Deployment", "starburst-chakra"))
    assert words[:3] == ["python", "-m", "chakra_plugin"]
    command = typer.main.get_command(chakra_plugin.main.app)
    given = command.make_context("chakra", words[3:]).params
    assert (given["leader_elect"], given["lease_namespace"], given["metrics_port"]) == (True, NAMESPACE, 8080)
    assert given["preempt"] == bool(values)


def test_starburst_understands_its_command_line_and_its_config() -> None:
    found = objects()
    words = command_of(pick(found, "Deployment", "starburst"))
    assert words[:4] == ["python", "-m", "starburst", "up"]
    given = Subcommands()["up"].make_context("up", words[4:]).params
    mounts = pick(found, "Deployment", "starburst")["spec"]["template"]["spec"]["containers"][0][
        "volumeMounts"
    ]
    ((name, text),) = pick(found, "ConfigMap", "starburst")["data"].items()
    assert str(given["config"]) == f"{mounts[1]['mountPath']}/{name}"
    config = parse_config(yaml.safe_load(text), name)
    assert config.cluster.kind == "kubernetes"
    assert config.cloud.catalog() == ()


def test_two_chakras_stand_by_for_each_other_and_one_starburst_has_the_store() -> None:
    found = objects()
    chakra, starburst_ = pick(found, "Deployment", "starburst-chakra"), pick(found, "Deployment", "starburst")
    assert chakra["spec"]["replicas"] == 2
    assert starburst_["spec"]["replicas"] == 1
    assert starburst_["spec"]["strategy"] == {"type": "Recreate"}
    (home,) = [v for v in starburst_["spec"]["template"]["spec"]["volumes"] if v["name"] == "home"]
    claim = pick(found, "PersistentVolumeClaim", home["persistentVolumeClaim"]["claimName"])
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_another_config_makes_another_pod_which_reads_it() -> None:
    def pods(**values: Any) -> Object:
        template = pick(objects({"starburst": values}), "Deployment", "starburst")["spec"]["template"]
        found: Object = template["metadata"]
        return found

    assert pods() == pods(storage="20Gi")
    assert pods() != pods(config={"policy": {"pack_window": "1m"}})


def test_replicas_of_starburst_share_a_database_and_a_volume_and_stand_by_for_each_other() -> None:
    found = objects(OTHERWISE)
    deployment = pick(found, "Deployment", "starburst")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    words = command_of(pick(found, "Deployment", "starburst"))
    given = Subcommands()["up"].make_context("up", words[4:]).params
    assert given["standby"]
    pods = deployment["template"]["spec"]
    (container,) = pods["containers"]
    variables = {entry["name"]: entry for entry in container["env"]}
    assert variables["STARBURST_STORE"]["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "url"}
    assert variables["STARBURST_ADVERTISE"]["value"] == "http://$(POD_IP):8585"
    (apart,) = pods["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = deployment["template"]["metadata"]["labels"]
    assert apart["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels
    assert pick(found, "PodDisruptionBudget", "starburst")["spec"]["maxUnavailable"] == 1
    assert pick(found, "PersistentVolumeClaim", "starburst")["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"replicas": 2, "storeSecret": "", "accessMode": "ReadWriteMany"}, "storeSecret"),
        ({"replicas": 2, "storeSecret": "db", "accessMode": "ReadWriteOnce"}, "accessMode"),
        ({"replicas": 0}, "replicas"),
        ({"service": True, "config": {"http": {"max_body": 2**22}}}, "config"),  # the key would stand twice
        ({"ingress": {"host": "starburst.example.org"}}, "service"),
    ],
)
def test_values_of_starburst_that_cannot_go_together_are_refused(
    values: Mapping[str, Any], wrong: str
) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(defaults, schema)
    jsonschema.validate(OTHERWISE, schema)
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate({"starburst": {**defaults["starburst"], **values}}, schema)
    assert list(refused.value.absolute_path) == ["starburst", wrong]


def test_a_list_of_peers_without_any_is_refused_since_kubernetes_takes_it_for_all() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"networkPolicy": {"enabled": True, "from": []}}, schema)


def test_replicas_reach_each_other_whoever_else_may_connect() -> None:
    ingress = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}
    found = objects({**OTHERWISE, "networkPolicy": {"from": [ingress]}})
    others, replicas = pick(found, "NetworkPolicy", "starburst")["spec"]["ingress"]
    labels = pick(found, "Deployment", "starburst")["spec"]["template"]["metadata"]["labels"]
    assert (others["from"], others["ports"]) == ([ingress], replicas["ports"])
    assert replicas["from"] == [{"podSelector": {"matchLabels": labels}}]


@pytest.mark.parametrize("name", ["starburst", "starburst-chakra"])
def test_no_pod_runs_as_root_or_may_become_it(name: str) -> None:
    pods = pick(objects(), "Deployment", name)["spec"]["template"]["spec"]
    assert pods["securityContext"]["runAsNonRoot"]
    assert pods["securityContext"]["runAsUser"] == 10001
    (container,) = pods["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("values", [{}, OTHERWISE])
def test_selectors_find_the_pods_that_they_are_for(values: Mapping[str, Any]) -> None:
    found = objects(values)
    labels = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"]
        for item in found
        if item["kind"] == "Deployment"
    }
    for item in found:
        if item["kind"] in ("Deployment", "PodDisruptionBudget", "ServiceMonitor"):
            assert item["spec"]["selector"]["matchLabels"] == labels[item["metadata"]["name"]]
        if item["kind"] == "Service":
            assert item["spec"]["selector"] == labels[item["metadata"]["name"]] == item["metadata"]["labels"]


# What the switches do.


def kinds(values: Mapping[str, Any] = {}, apis: Iterable[str] = ("policy/v1",)) -> set[str]:
    return {item["kind"] for item in objects(values, frozenset(apis))}


def test_a_disruption_budget_is_made_where_the_server_has_them() -> None:
    assert kinds() - kinds(apis=()) == {"PodDisruptionBudget"}


def test_the_prometheus_operator_is_told_on_demand() -> None:
    assert kinds({"chakra": {"serviceMonitor": True}}) - kinds() == {"ServiceMonitor", "Service"}


def test_pods_of_jobs_reach_starburst_on_demand_and_without_a_token_nobody_else_does() -> None:
    found = objects({"starburst": {"service": True}})
    service = pick(found, "Service", "starburst")
    ((name, text),) = pick(found, "ConfigMap", "starburst")["data"].items()
    http = parse_config(yaml.safe_load(text), name).http
    (port,) = service["spec"]["ports"]
    where = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert http.report_url == f"http://{where}:{port['port']}"
    (container,) = pick(found, "Deployment", "starburst")["spec"]["template"]["spec"]["containers"]
    (listening,) = container["ports"]
    assert (listening["name"], listening["containerPort"]) == (port["targetPort"], http.port)
    assert not http.is_local
    assert "http" not in yaml.safe_load(pick(objects(), "ConfigMap", "starburst")["data"][name])


def test_chakra_can_be_had_alone() -> None:
    alone = objects({"starburst": {"enabled": False}})
    assert {item["metadata"]["name"] for item in alone} == {"starburst-chakra", "starburst-chakra-work"}


def test_where_pods_may_run_and_who_may_pull_is_said_for_both() -> None:
    for name in ("starburst", "starburst-chakra"):
        pods = pick(objects(OTHERWISE), "Deployment", name)["spec"]["template"]["spec"]
        for key in ("imagePullSecrets", "nodeSelector", "tolerations"):
            assert pods[key] == OTHERWISE[key]
            assert key not in pick(objects(), "Deployment", name)["spec"]["template"]["spec"]


# The files.


def test_the_plain_manifests_are_the_chart_with_its_defaults() -> None:
    assert (DEPLOY / "kubernetes.yaml").read_text() == manifests(), "python -m tests.deploy.render makes them"
    namespace, *rest = yaml.safe_load_all(manifests())
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", NAMESPACE)
    assert rest == objects()


@pytest.mark.skipif(shutil.which("helm") is None, reason="there is no helm here")
@pytest.mark.parametrize("values", [{}, OTHERWISE])
def test_helm_makes_the_same_of_it(values: Mapping[str, Any]) -> None:
    command = ["helm", "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-"]
    done = subprocess.run(
        command, input=yaml.safe_dump(dict(values)), capture_output=True, text=True, check=True
    )

    def by_name(found: Iterable[Object]) -> list[Object]:
        return sorted(found, key=lambda item: (item["kind"], item["metadata"]["name"]))

    assert by_name(yaml.safe_load_all(done.stdout)) == by_name(objects(values))


def test_chart_and_image_are_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == starburst.__version__
    assert values["image"] == f"starburst:{starburst.__version__}"


def test_the_image_is_made_of_locked_packages_and_runs_as_the_user_that_the_pods_name() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=python:3\.12-slim@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert re.search(r"^FROM \$\{BASE\}$", text, re.MULTILINE)
    assert "--require-hashes" in text
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    for source in re.findall(r"^COPY (\S+) ", text, re.MULTILINE):
        assert f"!{source}" in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert (DEPLOY.parent / "requirements" / "image.txt").exists()
