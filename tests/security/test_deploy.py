"""The chart's network boundary: a pod of the cluster connects to what it may, and to nothing else."""

from __future__ import annotations

from typing import Any

from tests.deploy.render import objects

EVERY_POD = [{"namespaceSelector": {}}]


def policies(values: dict[str, Any]) -> dict[str, Any]:
    found = [item for item in objects(values) if item["kind"] == "NetworkPolicy"]
    assert all(item["spec"]["policyTypes"] == ["Ingress"] for item in found)
    return {item["metadata"]["name"]: item["spec"].get("ingress") for item in found}


def test_nobody_connects_to_a_starburst_without_a_service() -> None:
    assert policies({})["starburst"] is None  # no rule allows anything


def test_the_api_and_the_metrics_are_one_port_each() -> None:
    rules = policies({"starburst": {"service": True}})
    assert rules["starburst"] == [{"from": EVERY_POD, "ports": [{"port": 8585}]}]
    assert rules["starburst-chakra"] == [{"from": EVERY_POD, "ports": [{"port": 8080}]}]


def test_an_operator_narrows_who_connects() -> None:
    only = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    rules = policies({"networkPolicy": {"from": only}, "starburst": {"service": True}})
    assert [rule[0]["from"] for rule in rules.values()] == [only, only]


def test_policies_select_the_pods_that_they_are_for() -> None:
    found = objects()
    labels = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"]
        for item in found
        if item["kind"] == "Deployment"
    }
    for item in (item for item in found if item["kind"] == "NetworkPolicy"):
        assert item["spec"]["podSelector"]["matchLabels"] == labels[item["metadata"]["name"]]


def test_the_ingress_has_tls_for_every_host_it_serves() -> None:
    values = {"service": True, "ingress": {"host": "starburst.example.org", "className": "nginx"}}
    (ingress,) = [item for item in objects({"starburst": values}) if item["kind"] == "Ingress"]
    (tls,) = ingress["spec"]["tls"]
    assert tls == {"hosts": ["starburst.example.org"], "secretName": "starburst-tls"}
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == tls["hosts"]
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"] == {"service": {"name": "starburst", "port": {"name": "http"}}}
    assert not [item for item in objects() if item["kind"] == "Ingress"]
