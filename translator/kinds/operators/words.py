"""Words of programs in a pod template, in which names that an operator gives become what a task has."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from translator.field import Field
from translator.kinds.operators.roles import TaskRole, marked

#: What the downward API reads of a pod's labels and annotations.
_OF_POD = re.compile(r"metadata\.(?:labels|annotations)\['([^']+)'\]")


def with_words(
    template: Field,
    change: Callable[[str], str],
    tell: Callable[[dict[str, Any]], object] = lambda _entry: None,
) -> Field:
    """A pod template whose program's words and plain variables are changed; `tell` may change others, and
    those of the containers beside it as far as that takes no shell.
    """
    changed: Any = copy.deepcopy(template.value)
    spec = changed.get("spec") if isinstance(changed, dict) else None
    containers = _mappings(spec.get("containers")) if isinstance(spec, dict) else []
    for container in containers[:1]:
        for key in ("command", "args"):
            if isinstance(container.get(key), list):
                container[key] = [change(word) if isinstance(word, str) else word for word in container[key]]
        for entry in _mappings(container.get("env")):
            if isinstance(entry.get("value"), str):
                entry["value"] = change(entry["value"])
            else:
                tell(entry)
    for entry in (each for beside in containers[1:] for each in _mappings(beside.get("env"))):
        told = dict(entry)
        tell(told)
        if "\0" not in str(told.get("value")):
            entry.clear()
            entry.update(told)
    return Field(changed, template.path, template.report)


def key_of(path: object) -> str:
    """The label or annotation of a pod that a path of the downward API names; "" if it names none."""
    found = _OF_POD.fullmatch(path) if isinstance(path, str) else None
    return found[1] if found else ""


def fill_in(entry: dict[str, Any], values: Mapping[str, str]) -> str:
    """Make a variable plain that reads what an operator writes on pods, by key; the key, or ""."""
    source = entry.get("valueFrom")
    field = source.get("fieldRef") if isinstance(source, dict) else None
    key = key_of(field.get("fieldPath") if isinstance(field, dict) else None)
    if key not in values:
        return ""
    entry.pop("valueFrom")
    entry["value"] = values[key]
    return key


def _mappings(value: object) -> list[dict[str, Any]]:
    """Those of a list; other values are refused where the template is read."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


class HostNames:
    """The names that an operator's Services give the tasks of some roles, and the ranks of those in use."""

    def __init__(self, job: str, roles: Sequence[TaskRole], subdomain: str = "") -> None:
        """`subdomain`: a name counts only with it behind it; else with nothing or a cluster's domain."""
        self._ranks: dict[tuple[str, int], int] = {}
        for role in roles:
            for index in range(role.replicas):
                self._ranks[role.name.lower(), index] = len(self._ranks)
        names = "|".join(sorted({re.escape(role.name.lower()) for role in roles}, key=len, reverse=True))
        end = rf"\.{re.escape(subdomain)}" if subdomain else r"(?:\.[a-z0-9-]+(?:\.svc(?:\.[a-z0-9.-]+)?)?)?"
        # a path or a longer word that has such a name in it is another thing
        self._name = re.compile(
            rf"(?<![\w.-])(?:(?<=//)|(?<!/)){re.escape(job)}-({names})-([0-9]{{1,9}}){end}(?![\w/-])"
        )
        self._can_be = bool(job and names)
        self.used: set[int] = set()

    def addressed(self, word: str) -> str:
        """A word with addresses, marked, in place of the names."""
        return self._name.sub(self._address, word) if self._can_be else word

    def _address(self, found: re.Match[str]) -> str:
        rank = self._ranks.get((found[1], int(found[2])))
        if rank is None:
            return found[0]
        self.used.add(rank)
        return marked(f"$starburst_host_{rank}")
