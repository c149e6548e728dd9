"""Values that a container refers to, resolved at the start of its run in the cloud.

These are values of ConfigMaps and Secrets, and the storage that the config maps to its volumes at that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from translator.carried import CloudStorage
from translator.fidelity import Fidelity
from translator.field import Field
from translator.manifests.references import SECRET, Lookup, Reference, Resolve
from translator.tasks.containers.registry_logins import logins_for
from translator.tasks.downward import ADDRESS, HOST, NODE_RANK, Downward
from translator.tasks.environment import Environment, expanded, read_environment
from translator.tasks.manifest_parts import ManifestParts, split_manifest
from translator.tasks.shell import ShellExpression, ShellWord
from translator.tasks.storage.mounts import MAPPED, Mount, read_mounts
from translator.tasks.storage.volume_files import FILES, VolumeFile, read_files


class UnresolvedError(Exception):
    """An object is missing, or may not be read. The message names it and contains no value."""


class NotNowError(Exception):
    """The cluster does not answer at present."""


@dataclass(frozen=True, slots=True)
class ReferencedData:
    """The data of the ConfigMaps and Secrets of a manifest; None for a missing object."""

    namespace: str
    data: Mapping[Reference, Mapping[str, str] | None] = field(repr=False)
    #: `binaryData` of ConfigMaps, which variables do not see; bytes that are no text as surrogates.
    binary: Mapping[Reference, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def file_data(self, reference: Reference) -> Mapping[str, str] | None:
        """What volumes have of an object; None if it is missing."""
        found = self.data.get(reference)
        return None if found is None else {**found, **self.binary.get(reference, {})}


@dataclass(frozen=True, slots=True)
class TaskHost:
    """The place of a task: its rank and its instance."""

    rank: int
    #: Address and host name of the instance.
    address: str
    host: str


@dataclass(frozen=True, slots=True)
class RuntimeValues:
    """The expanded environment and command line of a task; `secret` has the variables with Secrets."""

    plain: dict[str, str]
    secret: dict[str, str] = field(repr=False)
    #: With its arguments; those alone if they are for the image's own entry point.
    command: tuple[str, ...]
    has_program: bool = True
    #: Files of its volumes, with their contents.
    files: tuple[tuple[VolumeFile, str], ...] = field(default=(), repr=False)
    #: Logins for the registry of its image: user and password, in the order of trial.
    logins: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def is_late(manifest: Mapping[str, Any]) -> bool:
    """Whether a Job or Pod has variables or files that are resolved at the start of a run."""
    parts = split_manifest(manifest)
    container = parts.container
    return (
        bool(container.at("envFrom").value)
        or any(variable.at("valueFrom").value is not None for variable in container.at("env").items())
        or any(source.value is not None for source in _file_volumes(parts))
    )


def _file_volumes(parts: ManifestParts) -> Iterator[Field]:
    """The sources of volumes with files."""
    return (volume.at(kind) for volume in parts.spec.at("volumes").items() for kind in FILES)


def has_logins(manifest: Mapping[str, Any]) -> bool:
    """Whether a Job or Pod names Secrets with logins of its image's registry."""
    return bool(split_manifest(manifest).spec.at("imagePullSecrets").value)


def mounts_of(
    manifest: Mapping[str, Any], stores: Mapping[str, CloudStorage], *, in_container: bool
) -> tuple[Mount, ...]:
    """The mounts of the container of a Job or Pod.

    Raises:
        UnresolvedError: the config maps no storage to a volume (any more), or it cannot be mounted.
    """
    parts = split_manifest(manifest)
    report = parts.root.report
    report.leaves = True
    found = read_mounts(parts.spec, parts.container, stores, in_container=in_container)
    problems = [f"{error.field}: {error.mend}" for error in report.errors]
    problems += [f"{reason.field}: {reason.why}; {reason.mend}" for reason in report.stays]
    if problems:
        raise UnresolvedError("; ".join(problems))
    return tuple(found)


def taken(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths of fields that depend on the cluster: variables with a source, and volumes."""
    parts = split_manifest(manifest)
    variables = [variable.at("valueFrom") for variable in parts.container.at("env").items()]
    volumes = [volume.at(kind) for volume in parts.spec.at("volumes").items() for kind in MAPPED]
    fields = (parts.container.at("envFrom"), *variables, *volumes, *_file_volumes(parts))
    return tuple(field.path for field in fields if field.value not in (None, []))


def references(manifest: Mapping[str, Any], namespace: str) -> tuple[Reference, ...]:
    """The ConfigMaps and Secrets to look up, in the manifest's namespace or else in `namespace`."""
    wanted: dict[Reference, None] = {}

    def note(reference: Reference) -> None:
        wanted[reference] = None

    parts = split_manifest(manifest)
    _read(parts, namespace, note, Fidelity())
    _files(parts, namespace, note, Fidelity())
    for reference in _pull_secrets(parts, parts.metadata.at("namespace").text() or namespace):
        note(reference)
    return tuple(wanted)


def evaluate(manifest: Mapping[str, Any], found: ReferencedData, here: TaskHost) -> RuntimeValues:
    """The environment and command line of one task.

    Raises:
        UnresolvedError: a ConfigMap, Secret or key of one is missing, or a value cannot be used.
    """
    parts, fidelity = split_manifest(manifest), Fidelity()
    environment = _read(parts, found.namespace, found.data.get, fidelity)
    words = [
        (word, expanded(word, environment, fidelity))
        for word in (*parts.container.at("command").items(), *parts.container.at("args").items())
    ]
    files = _files(parts, found.namespace, found.file_data, fidelity)
    secrets: dict[ShellExpression, str] = {
        ShellExpression(f"${{{k}}}"): v or "" for k, v in environment.secrets.items()
    }
    lines = [f"{line.field}: {line.text}" for line in fidelity.lines if line.verdict.value == "refused"]
    lines += [f"{error.field}: {error.mend}" for error in parts.root.report.errors]
    lines += [
        f"{written.path}: a Secret's value would stand in the command line, for everybody on the machine to "
        "read; read the variable in the command"
        for written, word in words
        if secrets.keys() & set(word)
    ]
    if lines:
        raise UnresolvedError("; ".join(dict.fromkeys(lines)))
    known = {NODE_RANK: str(here.rank), ADDRESS: here.address, HOST: here.host, **secrets}
    words_of = {name: environment.values[name] for name in environment.names}
    return RuntimeValues(
        plain={k: _text(word, known) for k, word in words_of.items() if not secrets.keys() & set(word)},
        secret={k: _text(word, known) for k, word in words_of.items() if secrets.keys() & set(word)},
        command=tuple(_text(word, known) for _, word in words),
        has_program=bool(parts.container.at("command").value),
        files=tuple((file, _text(file.content, known)) for file in files),
        logins=_logins(parts, found),
    )


def _pull_secrets(parts: ManifestParts, namespace: str) -> tuple[Reference, ...]:
    names = [each.at("name").text() for each in parts.spec.at("imagePullSecrets").items()]
    return tuple(Reference(SECRET, namespace, name) for name in names if name)


def _logins(parts: ManifestParts, found: ReferencedData) -> tuple[tuple[str, str], ...]:
    """The logins for the container's image; a Secret that is not there is none, as for a kubelet."""
    namespace = parts.metadata.at("namespace").text() or found.namespace
    secrets = [found.data.get(reference) for reference in _pull_secrets(parts, namespace)]
    return logins_for(parts.container.at("image").text() or "", [data for data in secrets if data])


def _read(parts: ManifestParts, namespace: str, resolve: Resolve, fidelity: Fidelity) -> Environment:
    downward = _downward(parts, namespace)
    lookup = Lookup(resolve, downward.namespace, fidelity)
    return read_environment(parts.container, downward, lookup, {}, by_shell=False)


def _files(parts: ManifestParts, namespace: str, resolve: Resolve, fidelity: Fidelity) -> list[VolumeFile]:
    downward = _downward(parts, namespace)
    return read_files(parts.spec, parts.container, Lookup(resolve, downward.namespace, fidelity), downward)


def _downward(parts: ManifestParts, namespace: str) -> Downward:
    metadata, tasks = parts.metadata, parts.job.at("parallelism").value
    return Downward(
        name=metadata.at("name").text() or (metadata.at("generateName").text() or "").rstrip("-"),
        names_pods=parts.names_pods,
        namespace=metadata.at("namespace").text() or namespace,
        metadata=parts.template.at("metadata"),
        spec=parts.spec,
        container=parts.container,
        indexed=parts.indexed or (isinstance(tasks, int) and tasks > 1),  # each task has a name of its own
    )


def _text(word: ShellWord, known: Mapping[ShellExpression, str]) -> str:
    return "".join(known.get(part, "") if isinstance(part, ShellExpression) else part for part in word)
