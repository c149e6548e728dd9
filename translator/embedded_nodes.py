"""The labels of the embedded cluster's nodes, and selectors and affinity in their words.

Its nodes have the labels that a kubelet and GPU Feature Discovery would give them. A label with several names
(`beta.kubernetes.io/arch`), and a type of GPU with several spellings, have one here: what a manifest asks for
is read into that one, so that node selectors and node affinity fit the same nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from starburst.domain import machine_facts as facts
from starburst.domain.constraints import NODE_NAME, Requirement, Rules
from starburst.domain.resources import Resources
from translator.manifests.places import fact_of, told_by

#: The one name of each label.
_LABELS = {
    facts.ARCH: "kubernetes.io/arch",
    facts.OS: "kubernetes.io/os",
    facts.HOSTNAME: "kubernetes.io/hostname",
    facts.INSTANCE_TYPE: "node.kubernetes.io/instance-type",
    facts.REGION: "topology.kubernetes.io/region",
    facts.ZONE: "topology.kubernetes.io/zone",
    facts.GPU_TYPE: "nvidia.com/gpu.product",
    facts.GPU_COUNT: "nvidia.com/gpu.count",
    facts.GPU_MEMORY: "nvidia.com/gpu.memory",
}
#: Names of processors, by those of Linux.
_ARCHS = {"x86_64": "amd64", "aarch64": "arm64"}


def node_labels(
    name: str, capacity: Resources, machine: str, own: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The labels of a node, sorted: `own` come first. `machine` is its processor as Linux names it."""
    found = {facts.HOSTNAME: name, facts.ARCH: _ARCHS.get(machine, machine), facts.OS: "linux"}
    if capacity.gpus:
        found |= {facts.GPU_COUNT: str(capacity.gpus), **facts.of_gpus(capacity, 0)}
    labels = {_LABELS[key]: value for key, value in found.items()}
    return tuple(sorted({**labels, **own, **dict(_label(*pair) for pair in own.items())}.items()))


def selected(labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Labels of a node selector, as nodes have them; sorted."""
    return tuple(sorted({_label(*pair) for pair in labels}))


def ruled(rules: Rules) -> Rules:
    """Rules whose affinity names labels as nodes have them."""
    return replace(rules, affinity=tuple(tuple(map(_requirement, term)) for term in rules.affinity))


def _label(key: str, value: str) -> tuple[str, str]:
    found = _requirement(Requirement(key, "In", (value,)))
    return found.key, found.values[0]


def _requirement(written: Requirement) -> Requirement:
    key = _LABELS.get(told_by(written.key))
    if key is None or written.key == NODE_NAME:
        return written
    if written.operator not in ("In", "NotIn"):
        return replace(written, key=key)
    meant = fact_of(written)  # None: no model of GPU is named
    return written if meant is None else replace(meant, key=key)
