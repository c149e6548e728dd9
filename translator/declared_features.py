"""Features that a pod needs of its node, and that nodes declare in their status (Kubernetes 1.35, KEP-5328).

A node without the feature would run such a pod wrongly or not at all, so kube-scheduler leaves it out (its
plugin NodeDeclaredFeatures). Here it is a requirement on a key that no label can have. Which fields need
which feature: `InferForScheduling` in Kubernetes' component-helpers, of 1.35 to 1.37. Servers that know none
of these fields drop them from pods, so nothing is required there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from starburst.domain.constraints import Requirement, Term

#: Before the name of a feature, among the labels of a node; no label is written so.
PREFIX = "status.declaredFeatures/"
RESTART_ALL = "RestartAllContainersOnContainerExits"
ULIMITS = "ContainerUlimits"
HOST_NETWORK = "UserNamespacesHostNetworkSupport"


def declared(status: Mapping[str, Any]) -> dict[str, str]:
    """The features of a node's status, as labels."""
    return {f"{PREFIX}{name}": "" for name in status.get("declaredFeatures") or ()}


def needing(terms: tuple[Term, ...], spec: Mapping[str, Any]) -> tuple[Term, ...]:
    """Node affinity that also asks for the features that a pod spec needs."""
    needed = tuple(Requirement(f"{PREFIX}{name}", "Exists") for name in sorted(set(_needed(spec))))
    if not needed:
        return terms
    return tuple((*term, *needed) for term in terms if term) if any(terms) else terms or (needed,)


def undeclared(terms: Iterable[Term], labels: Mapping[str, str]) -> list[str]:
    """The features that such an affinity asks for and a node with these labels does not declare."""
    asked = {each.key for term in terms for each in term if each.key.startswith(PREFIX)}
    return sorted(key.removeprefix(PREFIX) for key in asked - labels.keys())


def _needed(spec: Mapping[str, Any]) -> Iterator[str]:
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        yield HOST_NETWORK
    for container in (*_mappings(spec.get("initContainers")), *_mappings(spec.get("containers"))):
        rules = _mappings(container.get("restartPolicyRules"))
        if any(rule.get("action") == "RestartAllContainers" for rule in rules):
            yield RESTART_ALL
        context = container.get("securityContext")
        if isinstance(context, Mapping) and context.get("ulimits") is not None:
            yield ULIMITS


def _mappings(found: object) -> list[Mapping[str, Any]]:
    """The mappings of a list; a file whose fields have not been judged yet may say anything."""
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, (list, tuple)) else []
