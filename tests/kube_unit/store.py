"""What a fake API server keeps: objects by path, the history of changes, and Kubernetes' rules of writing.

Semantics: Kubernetes documentation, "API Concepts", and RFC 6902 and 7396 of patches.
"""

from __future__ import annotations

import marshal
import math
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

Object = dict[str, Any]

_PATH = re.compile(
    r"(?P<root>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/(?!status$|finalize$)))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
#: Kinds whose status is written through its own path only.
_WITH_STATUS = frozenset({"pods", "jobs", "nodes"})
#: Fields that servers before a minor version drop, by plural.
_DROPPED = {"jobs": ((21, "suspend"), (21, "completionMode")), "pods": ((26, "schedulingGates"),)}

#: From this minor version on no status of a Job may count fewer ended pods than it did.
_COUNTS_UP = 32


class RefusedError(Exception):
    """The server says no."""

    def __init__(self, status: int, reason: str, message: str = "", name: str = "") -> None:
        """`name`: of the object that it is about, if the answer has it."""
        super().__init__(f"{status} {reason} {message}")
        self.status, self.reason, self.message, self.name = status, reason, message, name


def copied(item: Any) -> Any:
    """A copy of what JSON can say, several times as fast as JSON's own way there and back."""
    return marshal.loads(marshal.dumps(item))


@dataclass(frozen=True, slots=True)
class Address:
    """A path taken apart. `namespace` and `name` are "" where the path has none."""

    root: str
    plural: str
    namespace: str = ""
    name: str = ""
    sub: str = ""

    @classmethod
    def of(cls, path: str) -> Address:
        """Raises RefusedError: no such path."""
        match = _PATH.fullmatch(path)
        if match is None:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        return cls(**{key: value or "" for key, value in match.groupdict().items()})

    def holds(self, other: Address) -> bool:
        """Whether an object's address is in this collection."""
        same = (self.root, self.plural) == (other.root, other.plural)
        return same and self.namespace in ("", other.namespace)


@dataclass(frozen=True, slots=True)
class Change:
    """One write: `old` and `new` are None before and after the object's life."""

    version: int
    address: Address
    old: Object | None
    new: Object | None


class Store:
    """Objects and their history. Every write makes one resource version."""

    def __init__(self, minor: int = 20) -> None:
        #: Of the server's version: what it drops.
        self.minor = minor
        self.version = 100
        #: Changes up to this version are forgotten.
        self.compacted = 0
        self.history: list[Change] = []
        self._objects: dict[Address, Object] = {}
        #: Addresses of a root and plural in the order of namespace and name, until one comes or goes.
        self._in_order: dict[tuple[str, str], list[Address]] = {}

    # Reading.

    def get(self, address: Address) -> Object:
        """Raises RefusedError: there is none."""
        found = self._objects.get(_bare(address))
        if found is None:
            message = f'{address.plural} "{address.name}" not found'
            raise RefusedError(404, "NotFound", message, address.name)
        return found

    def all(self, within: Address, selector: str = "") -> list[Object]:
        """In the order of namespace and name."""
        namespace, held = within.namespace, self._held(within.root, within.plural)
        found = [self._objects[each] for each in held if not namespace or each.namespace == namespace]
        return [item for item in found if selects(selector, item)] if selector else found

    def _held(self, root: str, plural: str) -> list[Address]:
        held = self._in_order.get((root, plural))
        if held is None:
            held = [each for each in self._objects if each.plural == plural and each.root == root]
            held.sort(key=lambda address: (address.namespace, address.name))
            self._in_order[root, plural] = held
        return held

    def compact(self) -> None:
        """Forget the past: who is behind now is told 410."""
        self.compacted = self.version
        self.history.clear()

    # Writing.

    def create(self, address: Address, body: Object) -> Object:
        """Raises RefusedError: the name is taken (409)."""
        made = copied(body)
        metadata = made.setdefault("metadata", {})
        if "name" not in metadata and "generateName" in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        address = Address(address.root, address.plural, address.namespace, metadata["name"])
        if address in self._objects:
            raise RefusedError(409, "AlreadyExists", f'{address.plural} "{address.name}" already exists')
        if address.namespace:
            metadata["namespace"] = address.namespace
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", _now())
        metadata["generation"] = 1
        for minor, field in _DROPPED.get(address.plural, ()):
            if self.minor < minor:
                made.get("spec", {}).pop(field, None)
        if address.plural == "pods":
            made.setdefault("status", {}).setdefault("phase", "Pending")
        return self._write(address, made)

    def update(self, address: Address, body: Object) -> Object:
        """As PUT does. Raises RefusedError: it was changed after the resource version in the body (409)."""
        return self._replace(address, copied(body))

    def patch(self, address: Address, change: Any) -> Object:
        """A merge patch if it is a mapping, a JSON patch if it is a list."""
        old = self.get(address)
        new = operated(old, change) if isinstance(change, list) else merged(old, change)
        return self._replace(address, new)

    def _replace(self, address: Address, new: Object) -> Object:
        old = self.get(address)
        known = old["metadata"]
        metadata = new.setdefault("metadata", {})
        for mark, word in (
            ("resourceVersion", "the object has been modified"),
            ("uid", "Precondition failed: UID"),
        ):
            if metadata.setdefault(mark, known[mark]) != known[mark]:
                raise RefusedError(409, "Conflict", word)
        for kept in ("name", "namespace", "creationTimestamp", "generation", "deletionTimestamp"):
            if kept in known:
                metadata[kept] = known[kept]
        if address.sub == "status":
            if address.plural == "jobs" and self.minor >= _COUNTS_UP:
                _refuse_fewer(old.get("status") or {}, new.get("status") or {})
            new = {**old, "metadata": metadata, "status": new.get("status", {})}
        elif address.plural in _WITH_STATUS and "status" in old:
            new["status"] = old["status"]
        if new == old:
            return old
        new = copied(new)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] += 1
        ends = "deletionTimestamp" in known and not metadata.get("deletionGracePeriodSeconds")
        if ends and not metadata.get("finalizers"):
            return self.remove(address)
        return self._write(_bare(address), new)

    def delete(self, address: Address, options: Object) -> Object:
        """Bound pods that still run, and what has finalizers, are only marked. Raises RefusedError."""
        old = self.get(address)
        metadata = old["metadata"]
        if options.get("preconditions", {}).get("uid") not in (None, metadata["uid"]):
            raise RefusedError(409, "Conflict", "Precondition failed: UID in precondition")
        grace = 0
        spec, phase = old.get("spec", {}), old.get("status", {}).get("phase")
        if address.plural == "pods" and spec.get("nodeName") and phase not in ("Succeeded", "Failed"):
            grace = options.get("gracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30))
        gone = not grace and not metadata.get("finalizers")
        if address.plural == "pods" or not gone:
            longer = grace >= metadata.get("deletionGracePeriodSeconds", math.inf)
            if "deletionTimestamp" in metadata and not gone and longer:
                return old  # a grace can only be made shorter
            marks = {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": grace}
            old = self._write(_bare(address), dict(merged(old, {"metadata": marks})))
        return self.remove(address) if gone else old

    def remove(self, address: Address) -> Object:
        """Take it away, as a kubelet does at the end of the grace."""
        old = self.get(address)
        del self._objects[_bare(address)]
        self._in_order.pop((address.root, address.plural), None)
        self.version += 1
        last: Object = merged(old, {"metadata": {"resourceVersion": str(self.version)}})
        self.history.append(Change(self.version, _bare(address), last, None))
        return last

    def bind(self, address: Address, binding: Object) -> None:
        """Raises RefusedError: it is bound, or being deleted (409)."""
        pod = self.get(address)
        if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            raise RefusedError(
                409, "Conflict", f"pod {address.name} is already assigned to a node, or is being deleted"
            )
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _now()}
        others = [found for found in pod["status"].get("conditions", ()) if found["type"] != "PodScheduled"]
        change = {
            "metadata": {"annotations": binding["metadata"].get("annotations", {})},
            "spec": {"nodeName": binding["target"]["name"]},
            "status": {"conditions": [*others, scheduled]},
        }
        self._write(_bare(address), merged(pod, change))

    def _write(self, address: Address, new: Object) -> Object:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        old = self._objects.get(address)
        if old is None:
            self._in_order.pop((address.root, address.plural), None)
        self.history.append(Change(self.version, address, old, new))
        self._objects[address] = new
        return new


def event_of(change: Change, within: Address, selector: str) -> Object | None:
    """As a watch of this collection and selector tells it; None if it is none of its business."""
    if not within.holds(change.address):
        return None
    was = change.old is not None and selects(selector, change.old)
    if change.new is not None and selects(selector, change.new):
        return {"type": "MODIFIED" if was else "ADDED", "object": change.new}
    if not was:
        return None
    last = change.old if change.new is None else change.new
    return {"type": "DELETED", "object": last}


def selects(selector: str, item: Object) -> bool:
    """A label selector: "a=b,c!=d,e,!f,g in (h,i),j notin (k)"."""
    labels = item["metadata"].get("labels") or {}
    return all(_holds(term.strip(), labels) for term in _terms(selector))


def _terms(selector: str) -> Iterator[str]:
    yield from (term for term in re.split(r",(?![^(]*\))", selector) if term)


def _holds(term: str, labels: dict[str, str]) -> bool:
    if match := re.fullmatch(r"(\S+) (in|notin) \((.*)\)", term):
        within = labels.get(match[1]) in [value.strip() for value in match[3].split(",")]
        return within == (match[2] == "in")
    if match := re.fullmatch(r"([^!=]+)(!=|==?)(.*)", term):
        return (labels.get(match[1]) == match[3]) == (match[2] != "!=")
    return term[1:] not in labels if term.startswith("!") else term in labels


def merged(old: Any, change: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def operated(old: Object, operations: list[Object]) -> Object:
    """A JSON patch (RFC 6902): add, remove, replace, test. Raises RefusedError (422): it does not apply."""
    new = copied(old)
    for each in operations:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:]]
        try:
            inner: Any = new
            for part in path:
                inner = inner[int(part)] if isinstance(inner, list) else inner[part]
            key: Any = int(last) if isinstance(inner, list) and last != "-" else last
            _operate(each["op"], inner, key, each.get("value"))
        except (LookupError, ValueError) as error:
            raise RefusedError(422, "Invalid", f"{each}: {error!r}") from error
    return new


def _operate(operation: str, inner: Any, key: Any, value: Any) -> None:
    if operation == "add" and isinstance(inner, list):
        inner.insert(len(inner) if key == "-" else key, value)
    elif operation == "test":
        if inner[key] != value:
            raise ValueError("the test failed")
    elif operation == "remove":
        del inner[key]
    else:
        if operation == "replace":
            inner[key]  # must be there
        inner[key] = value


def _refuse_fewer(old: Object, new: Object) -> None:
    for counter in ("succeeded", "failed"):
        if new.get(counter, 0) < old.get(counter, 0):
            raise RefusedError(422, "Invalid", f"status.{counter}: cannot decrease the {counter} counter")


def _bare(address: Address) -> Address:
    return Address(address.root, address.plural, address.namespace, address.name)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
