"""Fields: values of a manifest with their paths. Problems are collected, instead of raised at the first."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from translator.carried import Carried
from translator.errors import ManifestError

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

ONLY_THE_CLUSTER = "only the cluster can do this: set the annotation starburst.io/cloud: never"
AWAY = "does not go along to a cloud"


@dataclass(frozen=True, slots=True)
class StayReason:
    """A part of a manifest that cannot go along to a cloud, so that its job stays on the cluster."""

    field: str
    #: What it is, as in "stays on the cluster: PVC data".
    part: str
    why: str
    #: How the job could leave, or be told to stay.
    mend: str = ONLY_THE_CLUSTER


@dataclass(slots=True)
class ManifestReport:
    """The problems and notes of one manifest, and the conditions under which fields are problems."""

    source: str
    document: int
    errors: list[ManifestError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: Why the job cannot leave; empty if it never does.
    stays: list[StayReason] = field(default_factory=list)
    #: The cluster is Kubernetes and runs the manifest itself; false for the embedded cluster.
    native: bool = False
    #: An API server has taken the manifest, so a field that is not known is one of a newer Kubernetes.
    accepted: bool = False
    #: There are offers, so that jobs may be offloaded at all.
    offers: bool = True
    #: The job may be offloaded to a cloud without Kubernetes.
    leaves: bool = True
    #: A job that cannot leave stays on the cluster (policy.cannot_leave: stay); false: it is refused.
    may_stay: bool = True
    #: Values and storage of the cluster that the job gets in the cloud; None is none.
    carries: Carried | None = None
    #: In the cloud the command runs on the instance itself, without the image.
    on_host: bool = False
    #: The manifest's namespace; "" if it names none.
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Fields:
    """The treatment of each field of one kind of mapping; an unlisted field is an error."""

    #: Name of the mapping, as in "is not a field of ...".
    owner: str
    read: Collection[str]
    #: Ignored, without an effect on the job.
    harmless: Collection[str] = ()
    #: Ignored with a note to the user.
    noted: Mapping[str, str] = field(default_factory=dict)
    #: Refused with a remedy.
    refused: Mapping[str, str] = field(default_factory=dict)
    #: Noted and refused fields that a Kubernetes cluster honours, so that they are lost in a cloud only.
    kept: Collection[str] = ()

    @property
    def names(self) -> list[str]:
        """All listed fields."""
        return [*self.read, *self.harmless, *self.noted, *self.refused]


@dataclass(frozen=True, slots=True)
class Field:
    """A value and its dotted path. None counts as absent, as in Kubernetes."""

    value: object
    path: str
    report: ManifestReport

    def refuse(self, mend: str, *, show: bool = True) -> None:
        """Record a problem of this field."""
        value = self.value if show else None
        self.report.errors.append(
            ManifestError(self.report.source, self.report.document, self.path, value, mend)
        )

    def note(self, text: str) -> None:
        """Record a note to the user about this field."""
        self.report.notes.append(f"{self.path}: {text}")

    def refuse_away(self, refusal: str, away: str = AWAY, *, show: bool = True, part: str = "") -> None:
        """Judge a field that only Kubernetes honours: it is refused on the embedded cluster, and keeps an
        offloadable job on a Kubernetes cluster. `part` names it in the reason; "" takes the field's name.
        """
        if not self.report.native:
            self.refuse(refusal, show=show)
        else:
            self.stay(part or self.path.rpartition(".")[2], away)

    def stay(self, part: str, why: str = AWAY, mend: str = ONLY_THE_CLUSTER) -> None:
        """Record that this field keeps an offloadable job on the cluster."""
        if self.report.leaves:
            self.report.stays.append(StayReason(self.path, part, why, mend))

    def note_away(self, text: str) -> None:
        """Record a note on the loss of this field outside of Kubernetes: here, or after an offload."""
        if not self.report.native:
            self.note(text)
        elif self.report.leaves:
            self.note(f"{text} in the cloud")

    @property
    def goes_along(self) -> bool:
        """Whether the job gets ConfigMaps, Secrets and volumes of the cluster wherever it runs."""
        return self.report.native and (self.report.carries is not None or not self.report.leaves)

    def staying(self) -> Field:
        """The same field as of a job that is never offloaded, without notes about clouds."""
        return replace(self, report=replace(self.report, leaves=False))

    def at(self, key: str) -> Field:
        """The field under a key; absent if this is not a mapping or has no such key."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        if _PLAIN_KEY.fullmatch(key):
            path = f"{self.path}.{key}" if self.path else key
        else:
            path = f"{self.path}[{json.dumps(key)}]"
        return Field(value, path, self.report)

    def entries(self) -> dict[str, Field]:
        """The fields of a mapping by key; any other value is refused."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            self.refuse("must be a mapping of keys to values")
            return {}
        return {key: self.at(key) for key in self.value}

    def items(self) -> list[Field]:
        """The elements of a list; any other value is refused."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.refuse("must be a list; begin each element with a dash")
            return []
        return [Field(value, f"{self.path}[{i}]", self.report) for i, value in enumerate(self.value)]

    def text(self) -> str | None:
        """The text, None if absent; any other value is refused."""
        if self.value is None or isinstance(self.value, str):
            return self.value
        self.refuse("must be text; put it in quotes")
        return None

    def whole(self, least: int, most: int = 2**31 - 1) -> int | None:
        """The integer, None if absent; another value, or one outside of the bounds, is refused."""
        value = self.value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse("must be a whole number")
        elif not least <= value <= most:
            self.refuse(f"must be at least {least}" if value < least else f"must be at most {most}")
        else:
            return value
        return None

    def flag(self) -> bool:
        """The boolean, false if absent; any other value is refused."""
        if self.value is None or isinstance(self.value, bool):
            return bool(self.value)
        self.refuse("must be true or false")
        return False

    def choice(self, options: Collection[str]) -> str | None:
        """The value if it is one of `options`, None if absent; any other value is refused."""
        if self.value is None or self.value in options:
            return self.value if isinstance(self.value, str) else None
        self.refuse(f"must be {' or '.join(options)}")
        return None

    def check(self, fields: Fields) -> None:
        """Accept, note or refuse each field of this mapping."""
        for key, found in self.entries().items():
            if key not in fields.names and self.report.accepted:
                found.stay(key, f"is a field of {fields.owner} that Starburst does not know")
            elif key not in fields.names:
                found.refuse(
                    f"is not a field of {fields.owner}; {did_you_mean(key, fields.names)}", show=False
                )
            elif found.value in (None, False, "", [], {}):
                continue  # equal to absent
            elif key in fields.noted:
                (found.note_away if key in fields.kept else found.note)(fields.noted[key])
            elif key in fields.refused:
                (found.refuse_away if key in fields.kept else found.refuse)(fields.refused[key])


def did_you_mean(word: str, known: Collection[str], otherwise: str = "remove it") -> str:
    """The remedy for a misspelt name: the most similar known name, else `otherwise`."""
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), lowered, n=1)
    return f"did you mean {lowered[near[0]]}?" if near else otherwise
