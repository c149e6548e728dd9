"""The fidelity report: whether a cloud task keeps, approximates, drops or refuses each manifest field."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from translator.errors import ManifestError, shown
from translator.field import Field

#: Remedy for a refusal that has others too; ONLY_THE_CLUSTER is for refusals without another one.
STAY = "set the annotation starburst.io/cloud: never"


class FidelityLevel(str, Enum):
    """How faithfully a task represents a field."""

    KEPT = "kept"
    APPROXIMATED = "approximated"
    DROPPED = "dropped"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FieldFidelity:
    """The fidelity of one field, by dotted path. The text never contains the value of a Secret."""

    field: str
    verdict: FidelityLevel
    text: str


@dataclass(frozen=True, slots=True)
class Translation:
    """A SkyPilot task and its fidelity report; the task is empty if the manifest is invalid."""

    #: Excluded from the repr because it contains Secrets.
    task: dict[str, Any] = field(repr=False)
    report: tuple[FieldFidelity, ...]

    def refused(self, *, strict: bool = False) -> tuple[FieldFidelity, ...]:
        """The entries that prevent the offload; with `strict`, all fields that are not kept."""
        if strict:
            return tuple(line for line in self.report if line.verdict is not FidelityLevel.KEPT)
        return tuple(line for line in self.report if line.verdict is FidelityLevel.REFUSED)

    @property
    def without_secrets(self) -> dict[str, Any]:
        """The task with null for each secret, for display; SkyPilot expects such values at the launch."""
        secrets = dict.fromkeys(self.task.get("secrets", {}))
        return {**self.task, "secrets": secrets} if secrets else self.task


@dataclass(slots=True)
class Fidelity:
    """Collects the entries of a report."""

    lines: list[FieldFidelity] = field(default_factory=list)

    def kept(self, where: Field, text: str) -> None:
        """Add a field that has the same effect in the cloud."""
        self._add(where, FidelityLevel.KEPT, text)

    def approximated(self, where: Field, text: str) -> None:
        """Add a field with a similar effect in the cloud; the text states the difference."""
        self._add(where, FidelityLevel.APPROXIMATED, text)

    def dropped(self, where: Field, text: str) -> None:
        """Add a field that the task lacks; the text states the reason."""
        self._add(where, FidelityLevel.DROPPED, text)

    def refused(self, where: Field, text: str) -> None:
        """Add a field that prevents the offload; the text states the remedy."""
        self._add(where, FidelityLevel.REFUSED, text)

    def errors(self, errors: Collection[ManifestError]) -> None:
        """Add errors of the manifest, as refused fields."""
        for error in errors:
            text = ": ".join(part for part in (shown(error.value), error.mend) if part)
            self.lines.append(FieldFidelity(error.field, FidelityLevel.REFUSED, text))

    def has_approximated_within(self, where: Field) -> bool:
        """Whether a part of a field is only approximated, so that the whole of it is not kept."""
        inner = (line for line in self.lines if line.field.startswith(f"{where.path}."))
        return any(line.verdict is FidelityLevel.APPROXIMATED for line in inner)

    def in_order_of(self, manifest: Field) -> tuple[FieldFidelity, ...]:
        """The entries in the order of the manifest; an absent field follows its nearest parent."""
        lines = list(dict.fromkeys(self.lines))
        places = {path: place for place, path in enumerate(_paths(manifest, _with_parents(lines)))}
        return tuple(sorted(lines, key=lambda line: _place(line.field, places)))

    def _add(self, where: Field, verdict: FidelityLevel, text: str) -> None:
        self.lines.append(FieldFidelity(where.path, verdict, text))


@dataclass(frozen=True, slots=True)
class UntranslatedFields:
    """The untranslated fields of one kind of mapping, by level, each with the reason."""

    #: Fields that other modules translate.
    translated: Collection[str]
    kept: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """All listed fields."""
        return {*self.translated, *self.kept, *self.dropped, *self.refused}

    def judge(self, mapping: Field, fidelity: Fidelity) -> None:
        """Add an entry for each field of a mapping that has a value."""
        for key, found in mapping.entries().items():
            if found.value in (None, False, "", [], {}) or key in self.translated:
                continue
            if key in self.kept:
                fidelity.kept(found, self.kept[key])
            elif key in self.refused:
                fidelity.refused(found, self.refused[key])
            else:
                fidelity.dropped(found, self.dropped.get(key, "has no meaning outside a cluster"))


def _with_parents(lines: Iterable[FieldFidelity]) -> set[str]:
    """The paths of these entries and of everything around them."""
    found: set[str] = set()
    for line in lines:
        path = line.field
        while path not in found:
            found.add(path)
            path = _parent(path)
    return found


def _paths(where: Field, wanted: Collection[str]) -> Iterator[str]:
    """The wanted paths in the order of the manifest; the rest of it may be huge, and is not looked at."""
    if where.path not in wanted:
        return
    yield where.path
    if isinstance(where.value, dict):
        for key in where.value:
            yield from _paths(where.at(key), wanted)
    elif isinstance(where.value, list):
        for item in where.items():
            yield from _paths(item, wanted)


def _parent(path: str) -> str:
    return path[: max(path.rfind("."), path.rfind("["), 0)]


def _place(path: str, places: Mapping[str, int]) -> int:
    while path and path not in places:
        path = _parent(path)
    return places.get(path, -1)
