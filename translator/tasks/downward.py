"""The downward API outside of Kubernetes: values about a pod, taken from its manifest or its instance."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from translator.fidelity import FidelityLevel
from translator.field import ONLY_THE_CLUSTER, Field
from translator.quantity import quantity
from translator.tasks.shell import ShellExpression, ShellWord

_MAP_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")

#: SKYPILOT_NODE_IPS has the addresses of all nodes, one per line, by rank.
ADDRESS = ShellExpression('$(printf %s "${SKYPILOT_NODE_IPS}" | sed -n "$((${SKYPILOT_NODE_RANK:-0} + 1))p")')
FIRST_ADDRESS = ShellExpression('$(printf %s "${SKYPILOT_NODE_IPS}" | head -n 1)')
HOST = ShellExpression("$(hostname)")
NODE_RANK = ShellExpression("${SKYPILOT_NODE_RANK:-0}")
NODES = ShellExpression("${SKYPILOT_NUM_NODES:-1}")


@dataclass(frozen=True, slots=True)
class DownwardValue:
    """A value and its fidelity; `word` is None if there is no value."""

    word: ShellWord | None
    verdict: FidelityLevel
    text: str


@dataclass(frozen=True, slots=True)
class Downward:
    """The values about a pod that its containers may refer to."""

    #: Name in the manifest, and whether Kubernetes generates the pods' names.
    name: str
    names_pods: bool
    namespace: str
    #: The metadata of the pod.
    metadata: Field
    spec: Field
    container: Field
    indexed: bool

    def read(self, source: Field) -> DownwardValue:
        """The value of a `fieldRef` or `resourceFieldRef`."""
        if source.at("fieldRef").value is not None:
            return self._field(source.at("fieldRef").at("fieldPath").text() or "")
        if source.at("resourceFieldRef").value is not None:
            return self._amount(source.at("resourceFieldRef"))
        return _refused("this source of values is not known; write the value")

    def _field(self, path: str) -> DownwardValue:
        entry = _MAP_ENTRY.fullmatch(path)
        if entry:
            return self._entry(entry[1], entry[2])
        if path == "metadata.name" and not self.names_pods:
            return _kept((self.name,))
        if path == "metadata.name":
            word: ShellWord = (f"{self.name}-", NODE_RANK) if self.indexed else (self.name,)
            return _like(word, "pods have names of their own; the Job's stands in")
        if path == "metadata.namespace":
            return _kept((self.namespace,))
        if path == "spec.serviceAccountName":
            return _kept((self.spec.at("serviceAccountName").text() or "default",))
        if path in ("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"):
            return _like((ADDRESS,), "the address of the machine")
        if path == "spec.nodeName":
            return _like((HOST,), "the host name of the machine")
        return _refused(f"{path} exists in the cluster alone; {ONLY_THE_CLUSTER}")

    def _entry(self, kind: str, key: str) -> DownwardValue:
        if key == _INDEX_ANNOTATION and self.names_pods:
            return DownwardValue((NODE_RANK,), FidelityLevel.KEPT, "the rank of the node")
        if kind == "labels" and key in _UID_LABELS and self.names_pods:
            return _refused(f"the uid of the Job exists in the cluster alone; {ONLY_THE_CLUSTER}")
        if kind == "labels" and key in _JOB_LABELS and self.names_pods:
            return _kept((self.name,))
        return _kept((self.metadata.at(kind).at(key).text() or "",))

    def _amount(self, reference: Field) -> DownwardValue:
        """A request or limit divided by the divisor and rounded up, as in Kubernetes."""
        other = reference.at("containerName").text()
        if other not in (None, "", self.container.at("name").value):
            return _refused(f"the container {other} does not go along; {ONLY_THE_CLUSTER}")
        kind, _, resource = (reference.at("resource").text() or "").partition(".")
        resources = self.container.at("resources")
        found = resources.at(kind).at(resource).value
        if found is None and kind == "requests":
            found = resources.at("limits").at(resource).value
        if found is None:
            return _refused(f"the container has no {kind}.{resource}; write the value")
        divisor = self._quantity(reference.at("divisor").value) or Fraction(1)
        amount = self._quantity(found)
        if amount is None:
            return _refused(f"{kind}.{resource} is no quantity; mend it")
        return _kept((str(math.ceil(amount / divisor)),))

    @staticmethod
    def _quantity(value: object) -> Fraction | None:
        try:
            return quantity(value) if isinstance(value, (str, int, float)) else None
        except ValueError:
            return None


def judge(source: Field, container: Field, asked: str) -> None:
    """Keep a job on its cluster for a value that no cloud has; note one that is another there.

    `source` has a `fieldRef` or `resourceFieldRef`, and `asked` is what that asks for, as told to users.
    """
    nothing = Field(None, "", source.report)
    known = Downward("", True, "", nothing, nothing, container, False).read(source)
    if known.verdict is FidelityLevel.REFUSED:
        why, _, mend = known.text.partition("; ")
        source.stay(f"a value of {asked}", why, mend)
    elif known.verdict is FidelityLevel.APPROXIMATED:
        source.note(f"{known.text}, in the cloud")


def _kept(word: ShellWord) -> DownwardValue:
    return DownwardValue(word, FidelityLevel.KEPT, "known from the manifest")


def _like(word: ShellWord, text: str) -> DownwardValue:
    return DownwardValue(word, FidelityLevel.APPROXIMATED, text)


def _refused(text: str) -> DownwardValue:
    return DownwardValue(None, FidelityLevel.REFUSED, text)
