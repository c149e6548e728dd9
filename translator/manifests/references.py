"""References of a manifest to ConfigMaps and Secrets of its namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from translator.fidelity import Fidelity
from translator.field import ONLY_THE_CLUSTER, Field

SECRET = "Secret"
CONFIG_MAP = "ConfigMap"


@dataclass(frozen=True, slots=True)
class Reference:
    """A ConfigMap or a Secret."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


UNASKED = "is in the cluster, not here"
#: The data of an object, decoded, by key; None if there is no such object.
Resolve = Callable[[Reference], Mapping[str, str] | None]


@dataclass(frozen=True, slots=True)
class Data:
    """The data of a referenced object."""

    #: None if the object is missing or could not be looked up.
    values: Mapping[str, str] | None
    #: The object is missing and optional.
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Lookup:
    """Resolves references, and reports those that cannot be resolved."""

    resolve: Resolve | None
    namespace: str
    fidelity: Fidelity
    #: Reason for the lack of a cluster, if `resolve` is None.
    unasked: str = UNASKED

    def data(self, kind: str, where: Field, name: Field, *, mend: str = ONLY_THE_CLUSTER) -> Data:
        """The data of an object named by a field; `where` may have `optional`. Failures are refused there."""
        reference = Reference(kind, self.namespace, name.text() or "")
        if not reference.name:
            name.refuse(f"is missing; name the {kind}")
            return Data(None)
        if self.resolve is None:
            self.fidelity.refused(where, f"unresolved: {reference} {self.unasked}; {mend}")
            return Data(None)
        found = self.resolve(reference)
        if found is None and where.at("optional").flag():
            self.fidelity.kept(where, f"{reference} is optional and not there")
            return Data({}, absent=True)
        if found is None:
            self.fidelity.refused(where, f"there is no {reference} in namespace {self.namespace}; create it")
        return Data(found)
