"""Volumes of a job on an instance that it shares with other jobs: the mounts of its container.

All storage of `cloud.volumes` is mounted on every instance, so a mount only names a store, a path within it
and the path in the container.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from translator.carried import Bucket, CloudStorage
from translator.fidelity import STAY
from translator.field import AWAY, Field
from translator.quantity import quantity
from translator.tasks.storage.cloud_volumes import stand_in
from translator.tasks.storage.csi_buckets import bucket_of
from translator.tasks.storage.volume_files import FILES, judge_files

#: Kinds of volumes that the config may map to storage.
MAPPED = ("persistentVolumeClaim", "nfs", "csi")
#: The word for a type of volume, and the field of its source that has the name.
_TITLES = {
    "configMap": ("ConfigMap", "name"),
    "csi": ("CSI", "driver"),
    "nfs": ("NFS", "path"),
    "persistentVolumeClaim": ("PVC", "claimName"),
    "secret": ("Secret", "secretName"),
}
NOT_MOUNTED = "not mounted, paths are the machine's"


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of a container: storage at a path."""

    path: str
    #: None is a directory of the attempt: an emptyDir, or files of the cluster.
    store: CloudStorage | None
    #: Path within the store; for the attempt's directories the first component is the volume's number.
    below: str
    read_only: bool
    #: It has files that come with the run (`volume_files.py`).
    files: bool = False
    #: It is in memory: of so many MiB, 0 for as many as the container has.
    memory_mib: int | None = None


def read_mounts(
    spec: Field, container: Field, stores: Mapping[str, CloudStorage], *, in_container: bool
) -> list[Mount]:
    """The mounts of a pod; errors, and notes on differences in the cloud, are recorded in its report."""
    volumes = {volume.at("name").text(): (n, volume) for n, volume in enumerate(spec.at("volumes").items())}
    mounts: list[tuple[str | None, Field]] = [
        (mount.at("name").text(), mount) for mount in container.at("volumeMounts").items()
    ]
    for name, mount in mounts:
        if name not in volumes:
            mount.at("name").refuse("there is no such volume; add it under volumes")
    found: list[Mount] = []
    for name, (number, volume) in volumes.items():
        here = [mount for of, mount in mounts if of == name]
        for kind in FILES:
            judge_files(volume.at(kind), kind, container)
        found += _volume(volume, number, here, stores, in_container=in_container)
    return found


def _volume(
    volume: Field, number: int, mounts: list[Field], stores: Mapping[str, CloudStorage], *, in_container: bool
) -> Iterator[Mount]:
    kinds = [key for key, found in volume.entries().items() if key != "name" and found.value is not None]
    kind = kinds[0] if kinds else "emptyDir"  # the default of Kubernetes
    source = volume.at(kind)
    if kind == "emptyDir" and in_container:
        yield from _empty(volume, source, mounts, number)
    elif kind == "emptyDir":
        volume.note(f"{NOT_MOUNTED} in the cloud")
    elif kind in FILES:
        for mount in _mounted(source, mounts, None, str(number)):
            yield replace(mount, files=True, read_only=True)
    elif kind in (*MAPPED, "hostPath"):
        key, found = stand_in(stores, source, kind)
        if found is not None:
            yield from _stored(source, mounts, *found, in_container=in_container)
        elif kind == "hostPath":
            volume.note(f"{NOT_MOUNTED} in the cloud")
        elif not key:
            source.stay(volume_name(volume))
        else:
            mend = f"name what stands in for {key} under cloud.volumes, or {STAY}"
            source.stay(volume_name(volume), AWAY, mend)


def _empty(volume: Field, source: Field, mounts: list[Field], number: int) -> Iterator[Mount]:
    """An emptyDir: in memory if it is to be and is mounted once as a whole, else a directory on disk."""
    found = list(_mounted(source, mounts, None, str(number)))
    limit = source.at("sizeLimit")
    if source.at("medium").value != "Memory":
        if limit.value is not None:
            limit.note("does not limit a directory in the cloud")
        yield from found
    elif len(found) == 1 and found[0].below == str(number):
        yield replace(found[0], memory_mib=_mebibytes(limit))
    else:
        volume.note("a directory on disk, not in memory, in the cloud: it is not mounted once as a whole")
        yield from found


def _mebibytes(limit: Field) -> int:
    """A size in MiB, rounded up; 0 if there is none, or it is no size."""
    try:
        return 0 if limit.value is None else math.ceil(quantity(limit.value) / 2**20)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        limit.refuse("must be a size, such as 1Gi")
        return 0


def _stored(
    source: Field, mounts: list[Field], store: CloudStorage, below: str, *, in_container: bool
) -> Iterator[Mount]:
    if in_container:
        if mounts:
            what = f"{store.source}, which is no file system," if isinstance(store, Bucket) else told(store)
            source.note(f"{what} in the cloud")
        yield from _mounted(source, mounts, store, below)
        return
    for mount in mounts:
        why = "cannot be made for a job on the machine itself, which others share"
        mend = f"give it an image, without starburst.io/runtime: host, or {STAY}"
        mount.at("mountPath").stay(f"the mount {mount.at('mountPath').value}", why, mend)


def _mounted(source: Field, mounts: list[Field], store: CloudStorage | None, below: str) -> Iterator[Mount]:
    for mount in mounts:
        path, sub_path = mount.at("mountPath"), mount.at("subPath")
        where, within = path.text() or "", f"{below}/{sub_path.text() or ''}".strip("/")
        if not where.startswith("/") or ":" in where:
            path.refuse("must be an absolute path, without a colon")
        elif mount.at("subPathExpr").value:
            mend = f"write subPath, or {STAY}"
            mount.at("subPathExpr").stay("subPathExpr", "is not filled in in the cloud", mend)
        elif ".." in within.split("/") or ":" in within:
            (sub_path if sub_path.value else source).refuse("a path within may have no .. and no colon")
        else:
            read_only = source.at("readOnly").flag() or mount.at("readOnly").flag()
            yield Mount(where, store, within, read_only)


def told(store: CloudStorage) -> str:
    """A store as shown to users."""
    return store.source if isinstance(store, Bucket) else f"SkyPilot's volume {store.name}"


def volume_name(volume: Field) -> str:
    """A volume as it is named to users, such as "PVC data"; the volume's own name if its source has none."""
    bucket = bucket_of(volume.at("csi"))
    if bucket is not None:
        return f"the bucket {bucket}"
    for kind, (what, key) in _TITLES.items():
        name = volume.at(kind).at(key).text() if isinstance(volume.at(kind).value, dict) else None
        if name:
            return f"{what} {name}"
    return f"the volume {volume.at('name').value}"
