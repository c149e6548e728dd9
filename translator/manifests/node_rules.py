"""Rules beside the node selector for the nodes of a pod: tolerations and required node affinity."""

from __future__ import annotations

import re

from starburst.domain.constraints import NODE_NAME, Rules
from translator.field import Field, Fields
from translator.podspec import REQUIRED, node_rules

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_NO_PREFERENCES = {PREFERRED: "preferences are not considered"}
_TOLERATION = Fields(
    "a toleration", read=("key", "operator", "value", "effect"), harmless=("tolerationSeconds",)
)
_AFFINITY = Fields("an affinity", read=("nodeAffinity", "podAffinity", "podAntiAffinity"))
_NODE_AFFINITY = Fields("a node affinity", read=(REQUIRED,), noted=_NO_PREFERENCES)
_POD_AFFINITY = Fields(
    "an affinity between pods",
    read=(),
    noted=_NO_PREFERENCES,
    refused={REQUIRED: "keeping pods together or apart is not supported; choose nodes with nodeSelector"},
)
_NODE_SELECTOR = Fields("a node selector", read=("nodeSelectorTerms",))
_TERM = Fields("a node selector term", read=("matchExpressions", "matchFields"))
_REQUIREMENT = Fields("a requirement", read=("key", "operator", "values"))
_SPREAD = Fields(
    "a spread constraint",
    read=("whenUnsatisfiable",),
    harmless=(
        "labelSelector",
        "matchLabelKeys",
        "maxSkew",
        "minDomains",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "topologyKey",
    ),
)
_INTEGER = re.compile(r"[+-]?[0-9]+")


def read_rules(spec: Field) -> Rules:
    """The rules of a pod spec, none if they are invalid; errors and ignored fields go to its report."""
    known = len(spec.report.errors)
    affinity = spec.at("affinity")
    affinity.check(_AFFINITY)
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity.at(kind).check(_POD_AFFINITY)
    for constraint in spec.at("topologySpreadConstraints").items():
        _judge_spread(constraint)
    affinity.at("nodeAffinity").check(_NODE_AFFINITY)
    _check_node_selector(affinity.at("nodeAffinity").at(REQUIRED))
    for toleration in spec.at("tolerations").items():
        _check_toleration(toleration)
    if len(spec.report.errors) > known or not isinstance(spec.value, dict):
        return Rules()
    return node_rules(spec.value)


def _judge_spread(constraint: Field) -> None:
    constraint.check(_SPREAD)
    if constraint.at("whenUnsatisfiable").value == "ScheduleAnyway":
        constraint.note("preferences are not considered")
    else:
        constraint.refuse(
            "spreading pods is not supported; remove it, or let whenUnsatisfiable be ScheduleAnyway"
        )


def _check_toleration(field: Field) -> None:
    field.check(_TOLERATION)
    key = field.at("key").text() or ""
    operator = field.at("operator").choice(("Exists", "Equal")) or "Equal"
    value = field.at("value").text() or ""
    if field.at("effect").value:
        field.at("effect").choice(EFFECTS)
    if not key and operator != "Exists" and not field.at("operator").value:
        field.refuse("names no taint; give its key, or write operator: Exists to tolerate every taint")
    elif not key and operator != "Exists":
        field.at("operator").refuse("needs a key; write Exists to tolerate every taint")
    elif value and operator == "Exists":
        field.at("value").refuse("is not looked at under Exists; remove it, or write operator: Equal")


def _check_node_selector(selector: Field) -> None:
    """Check the terms of a node selector, of which a node must match one."""
    if selector.value is None:
        return
    selector.check(_NODE_SELECTOR)
    terms = selector.at("nodeSelectorTerms")
    if isinstance(selector.value, dict) and terms.value in (None, []):
        terms.refuse("is missing; write at least one term, or remove the affinity")
    for term in terms.items():
        term.check(_TERM)
        for requirement in term.at("matchExpressions").items():
            _check_label_requirement(requirement)
        for requirement in term.at("matchFields").items():
            _check_name_requirement(requirement)


def _check_label_requirement(field: Field) -> None:
    field.check(_REQUIREMENT)
    key = field.at("key").text()
    operator = field.at("operator").choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    values = _values(field)
    if not key:
        field.at("key").refuse("is missing; name a label of nodes")
    elif key == NODE_NAME:
        field.at("key").refuse("is the node's name and no label; move it to matchFields")
    if operator in ("In", "NotIn") and not values:
        field.at("values").refuse(f"is missing; {operator} needs at least one value")
    elif operator in ("Exists", "DoesNotExist") and values:
        field.at("values").refuse(f"must be absent under {operator}")
    elif operator in ("Gt", "Lt") and not (len(values) == 1 and _INTEGER.fullmatch(values[0])):
        field.at("values").refuse(f'{operator} needs one whole number, in quotes, such as ["8"]')
    elif field.at("operator").value is None:
        field.at("operator").refuse("is missing; write In, NotIn, Exists, DoesNotExist, Gt or Lt")


def _check_name_requirement(field: Field) -> None:
    field.check(_REQUIREMENT)
    if field.at("key").value != NODE_NAME:
        field.at("key").refuse(f"must be {NODE_NAME}; labels go under matchExpressions")
    if field.at("operator").value not in ("In", "NotIn"):
        field.at("operator").refuse("must be In or NotIn")
    if len(_values(field)) != 1:
        field.at("values").refuse("must be the name of one node; write a term for each")


def _values(field: Field) -> tuple[str, ...]:
    return tuple(each.text() or "" for each in field.at("values").items())
