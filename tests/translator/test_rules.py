"""Tolerations and required node affinity, with a real Kubernetes or without."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.domain.constraints import NODE_NAME, Requirement, Rules, Toleration
from tests.translator.manifests import errors, job, read_one

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TOLERATIONS = "spec.template.spec.tolerations[0]"
TERM = f"spec.template.spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


def tolerating(**toleration: Any) -> dict[str, Any]:
    return job("POD/tolerations", [toleration])


def terms(*found: Any) -> dict[str, Any]:
    return job(f"POD/affinity/nodeAffinity/{REQUIRED}", {"nodeSelectorTerms": list(found)})


def labels(**requirement: Any) -> dict[str, Any]:
    return terms({"matchExpressions": [requirement]})


def names(**requirement: Any) -> dict[str, Any]:
    return terms({"matchFields": [requirement]})


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("manifest", "rules"),
    [
        (tolerating(operator="Exists"), Rules(tolerations=(Toleration("", "Exists"),))),
        (tolerating(key="a", value="b"), Rules(tolerations=(Toleration("a", "Equal", "b"),))),
        (
            tolerating(key="a", operator="Exists", effect="NoExecute", tolerationSeconds=60),
            Rules(tolerations=(Toleration("a", "Exists", "", "NoExecute"),)),
        ),
        (tolerating(key="a", operator="Exists", effect=""), Rules(tolerations=(Toleration("a", "Exists"),))),
        (labels(key="a", operator="In", values=["1", "2"]), Rules(((Requirement("a", "In", ("1", "2")),),))),
        (labels(key="a", operator="DoesNotExist"), Rules(((Requirement("a", "DoesNotExist"),),))),
        (labels(key="a", operator="Gt", values=["-3"]), Rules(((Requirement("a", "Gt", ("-3",)),),))),
        (
            names(key="metadata.name", operator="NotIn", values=["n1"]),
            Rules(((Requirement(NODE_NAME, "NotIn", ("n1",)),),)),
        ),
        (
            terms(
                {},
                {
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                    "matchExpressions": [{"key": "a", "operator": "Exists"}],
                },
            ),
            Rules(((), (Requirement("a", "Exists"), Requirement(NODE_NAME, "In", ("n1",))))),
        ),
    ],
)
def test_rules_are_read_as_they_stand(manifest: dict[str, Any], rules: Rules, native: bool) -> None:
    assert read_one(manifest, native=native).job.rules == rules


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (
            tolerating(effect="NoExecute"),
            f"{TOLERATIONS}: names no taint; give its key, or write operator: Exists to tolerate every taint",
        ),
        (
            tolerating(operator="Equal", value="x"),
            f'{TOLERATIONS}.operator: "Equal": needs a key; write Exists to tolerate every taint',
        ),
        (tolerating(key="a", operator="In"), f'{TOLERATIONS}.operator: "In": must be Exists or Equal'),
        (
            tolerating(key="a", operator="Exists", value="b"),
            f'{TOLERATIONS}.value: "b": is not looked at under Exists; remove it, or write operator: Equal',
        ),
        (
            tolerating(key="a", effect="Never"),
            f'{TOLERATIONS}.effect: "Never": must be NoSchedule or PreferNoSchedule or NoExecute',
        ),
        (
            tolerating(key="a", values="b"),
            f"{TOLERATIONS}.values: is not a field of a toleration; did you mean value?",
        ),
        (terms(), f"{TERM}: is missing; write at least one term, or remove the affinity"),
        (labels(operator="Exists"), f"{TERM}[0].matchExpressions[0].key: is missing; name a label of nodes"),
        (
            labels(key="a"),
            f"{TERM}[0].matchExpressions[0].operator: is missing; "
            "write In, NotIn, Exists, DoesNotExist, Gt or Lt",
        ),
        (
            labels(key="a", operator="Has"),
            f'{TERM}[0].matchExpressions[0].operator: "Has": '
            "must be In or NotIn or Exists or DoesNotExist or Gt or Lt",
        ),
        (
            labels(key="a", operator="In"),
            f"{TERM}[0].matchExpressions[0].values: is missing; In needs at least one value",
        ),
        (
            labels(key="a", operator="In", values=[1]),
            f"{TERM}[0].matchExpressions[0].values[0]: 1: must be text; put it in quotes",
        ),
        (
            labels(key="a", operator="Exists", values=["b"]),
            f"{TERM}[0].matchExpressions[0].values: must be absent under Exists",
        ),
        (
            labels(key="a", operator="Gt", values=["many"]),
            f'{TERM}[0].matchExpressions[0].values: Gt needs one whole number, in quotes, such as ["8"]',
        ),
        (
            labels(key="metadata.name", operator="In", values=["n1"]),
            f'{TERM}[0].matchExpressions[0].key: "metadata.name": is the node\'s name and no label; '
            "move it to matchFields",
        ),
        (
            names(key="zone", operator="In", values=["n1"]),
            f'{TERM}[0].matchFields[0].key: "zone": must be metadata.name; labels go under matchExpressions',
        ),
        (
            names(key="metadata.name", operator="Exists", values=["n1"]),
            f'{TERM}[0].matchFields[0].operator: "Exists": must be In or NotIn',
        ),
        (
            names(key="metadata.name", operator="In", values=["n1", "n2"]),
            f"{TERM}[0].matchFields[0].values: must be the name of one node; write a term for each",
        ),
        (
            job(f"POD/affinity/podAffinity/{REQUIRED}", [{"topologyKey": "zone"}]),
            f"spec.template.spec.affinity.podAffinity.{REQUIRED}: "
            "keeping pods together or apart is not supported; choose nodes with nodeSelector",
        ),
        (
            job("POD/topologySpreadConstraints", [{"whenUnsatisfiable": "DoNotSchedule"}]),
            "spec.template.spec.topologySpreadConstraints[0]: spreading pods is not supported; remove it, "
            "or let whenUnsatisfiable be ScheduleAnyway",
        ),
    ],
)
def test_a_broken_rule_is_answered_with_one_line(manifest: dict[str, Any], line: str, native: bool) -> None:
    assert errors(manifest, native=native) == [f"train.yaml, document 1: {line}"]


@pytest.mark.parametrize(("native", "meant"), [(False, "T4"), (True, "Tesla-T4")])
def test_a_gpu_label_in_affinity_stays_a_requirement(native: bool, meant: str) -> None:
    found = read_one(
        labels(key="nvidia.com/gpu.product", operator="In", values=["Tesla-T4"]), native=native
    ).job
    assert found.tasks[0].gpu_type == ""
    assert found.rules == Rules(((Requirement("nvidia.com/gpu.product", "In", (meant,)),),))
