"""Tenancy: what jobs of each submitter may use of the shared cluster.

Starburst creates the objects of all users with one account, so the cluster's RBAC cannot distinguish them.
The check is a pure function of manifest, config and submitter. It is made at submission and again when the
object is created, because a stored job may be older than the config or this check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starburst.domain.job import Submitter
from translator.errors import ManifestError
from translator.field import ONLY_THE_CLUSTER, Field, ManifestReport
from translator.manifests.pod_security import PRIVILEGED, RESTRICTED, containers_of, judge

#: Name of the volume for checkpoints that Starburst adds to pods.
CHECKPOINT_VOLUME = "starburst-checkpoints"


@dataclass(frozen=True, slots=True)
class Grant:
    """Namespaces in which jobs may run, and Secrets that they may use there."""

    namespaces: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The tenancy rules of a config."""

    #: The namespace of jobs whose manifest names none.
    namespace: str = "default"
    #: Further namespaces that jobs of all queues may name.
    namespaces: tuple[str, ...] = ()
    #: A level of the Pod Security Standards.
    pod_security: str = RESTRICTED
    queues: Mapping[str, Grant] = field(default_factory=dict)
    #: The volume with the checkpoints of all jobs, as a Kubernetes volume source.
    checkpoints: Mapping[str, Any] | None = None

    def all_namespaces(self) -> tuple[str, ...]:
        """All namespaces in the config."""
        queues = (name for grant in self.queues.values() for name in grant.namespaces)
        return tuple(dict.fromkeys((self.namespace, *self.namespaces, *queues)))

    def namespaces_of(self, queue: str, submitter: Submitter) -> tuple[str, ...]:
        """The namespaces in which jobs of a queue and a submitter may run."""
        if submitter.admin:
            return tuple(dict.fromkeys((*self.all_namespaces(), *submitter.namespaces)))
        of_queue = self.queues.get(queue, Grant()).namespaces
        return tuple(dict.fromkeys((self.namespace, *self.namespaces, *of_queue, *submitter.namespaces)))

    def secrets_of(self, queue: str, submitter: Submitter) -> tuple[str, ...]:
        """The Secrets that a submitter without admin rights may use."""
        return tuple(dict.fromkeys((*self.queues.get(queue, Grant()).secrets, *submitter.secrets)))


@dataclass(frozen=True, slots=True)
class Ruling:
    """The problems of a manifest, and the access checks that only the cluster can make."""

    errors: list[ManifestError]
    #: Secrets that the submitter's own Kubernetes user must have the right to get.
    to_ask: tuple[str, ...] = ()


def rule(
    tenancy: Tenancy, manifest: Mapping[str, Any], queue: str, submitter: Submitter, *, leaves: bool = False
) -> Ruling:
    """Check a manifest against the rules; `leaves` is true if the job may run in a cloud."""
    report = ManifestReport("", 0)
    root = Field(manifest, "", report)
    template = root.at("spec").at("template") if root.at("kind").value == "Job" else root
    spec = template.at("spec")
    _namespace(root.at("metadata").at("namespace"), tenancy, queue, submitter)
    _mounts(spec)
    to_ask: dict[str, None] = {}
    if not submitter.admin:
        judge(template, tenancy.pod_security)
        _identity(spec, tenancy.pod_security)
        _checkpoints(spec, tenancy.checkpoints or {})
        allowed = tenancy.secrets_of(queue, submitter)
        for name in secrets_in(spec):
            if name.value not in allowed:
                _secret(name, allowed, queue, submitter, to_ask, leaves=leaves)
    return Ruling(report.errors, tuple(to_ask))


def _namespace(found: Field, tenancy: Tenancy, queue: str, submitter: Submitter) -> None:
    allowed = tenancy.namespaces_of(queue, submitter)
    if found.value not in (None, "", *allowed):
        found.refuse(
            f"jobs of queue {queue} go to {' or '.join(allowed)}; name one of these, or have it added to "
            "cluster.namespaces, to the queue's or to the token's"
        )


def _mounts(spec: Field) -> None:
    """Refuse mounts of volumes that the manifest does not declare, such as those that Starburst adds."""
    names = set()
    for volume in spec.at("volumes").items():
        names.add(volume.at("name").value if isinstance(volume.at("name").value, str) else None)
        if volume.at("name").value == CHECKPOINT_VOLUME:
            volume.at("name").refuse("is Starburst's own volume; choose another name")
    for container in containers_of(spec):
        for kind in ("volumeMounts", "volumeDevices"):
            for mount in container.at(kind).items():
                name = mount.at("name")
                if not isinstance(name.value, str) or name.value not in names:
                    name.refuse("there is no such volume; add it under volumes")


def _identity(spec: Field, level: str) -> None:
    if level == PRIVILEGED:
        return
    for key in ("serviceAccountName", "serviceAccount"):
        if spec.at(key).value not in (None, "", "default"):
            spec.at(key).refuse("jobs run under the account default of their namespace; remove it")
    if str(spec.at("priorityClassName").value or "").startswith("system-"):
        spec.at("priorityClassName").refuse("is for parts of the cluster; remove it")


def _checkpoints(spec: Field, checkpoints: Mapping[str, Any]) -> None:
    """Refuse the volume with the checkpoints of all jobs: a job may use its own directory only."""
    mend = "is where all jobs keep their checkpoints; a job finds its own at STARBURST_CHECKPOINT_DIR"
    for kind, theirs in checkpoints.items():
        for volume in spec.at("volumes").items():
            source = volume.at(kind)
            if kind == "persistentVolumeClaim":
                found = [source.at("claimName"), *_cloned(volume.at("ephemeral"))]
                same = [field for field in found if field.value == theirs.get("claimName")]
            elif source.value is None or source.at("server").value != theirs.get("server"):
                same = []
            else:
                same = [source.at("path")] if _overlap(source.at("path").value, theirs.get("path")) else []
            for claim in same:
                claim.refuse(mend)


def _cloned(ephemeral: Field) -> Iterator[Field]:
    """The names of the data sources of an ephemeral volume."""
    claim = ephemeral.at("volumeClaimTemplate").at("spec")
    for key in ("dataSource", "dataSourceRef"):
        yield claim.at(key).at("name")


def _overlap(one: object, other: object) -> bool:
    """Whether one of two paths contains the other; paths that cannot be compared count as overlapping."""
    parts = [
        None if not isinstance(path, str) or ".." in path.split("/") else [p for p in path.split("/") if p]
        for path in (one, other)
    ]
    if parts[0] is None or parts[1] is None:
        return True
    return all(a == b for a, b in zip(*parts))  # noqa: B905 - compared up to the shorter length


def _secret(
    name: Field,
    allowed: tuple[str, ...],
    queue: str,
    submitter: Submitter,
    to_ask: dict[str, None],
    *,
    leaves: bool,
) -> None:
    known = ", ".join(allowed) or "none"
    mend = (
        f"the Secrets of queue {queue} and this submitter are: {known}; have it added to the queue's or the "
        "token's"
    )
    if not isinstance(name.value, str) or not name.value:
        name.refuse("must be the name of a Secret")
    elif not submitter.kubernetes_user:
        name.refuse(mend)
    elif leaves:
        name.refuse(f"{mend}; what {submitter.kubernetes_user} may get does not go along: {ONLY_THE_CLUSTER}")
    else:
        to_ask[name.value] = None


def secrets_in(spec: Field) -> Iterator[Field]:
    """The fields with the names of all Secrets that a pod uses."""
    for pull in spec.at("imagePullSecrets").items():
        yield pull.at("name")
    parts = [*spec.at("volumes").items()]
    for container in containers_of(spec):
        parts += [*container.at("env").items(), *container.at("envFrom").items()]
    for part in parts:
        yield from _names_in(part)


def _names_of(reference: Field) -> Iterator[Field]:
    """Both fields that may name the Secret of a reference; the API server reads one of them, by its kind."""
    entries = reference.entries()
    given = [
        reference.at(key)
        for key in ("name", "secretName")
        if key in entries and entries[key].value is not None
    ]
    yield from given or [reference.at("name")]


def _names_in(found: Field) -> Iterator[Field]:
    """Secret names in a volume or variable: secretName, secretRef, secretKeyRef, nodePublishSecretRef, …"""
    if isinstance(found.value, list):
        for item in found.items():
            yield from _names_in(item)
    elif isinstance(found.value, dict):
        for key, value in found.entries().items():
            if value.value is None:
                continue
            if key == "secretName":
                yield value
            elif key == "secret" or key.lower().endswith(("secretref", "secretkeyref")):
                yield from _names_of(value)
            else:
                yield from _names_in(value)
