"""`cloud.volumes` of the config: the storage that replaces volumes of the cluster in the cloud."""

from __future__ import annotations

import re
from collections.abc import Mapping

from translator.carried import Bucket, CloudStorage, SkyVolume
from translator.field import Field, Fields
from translator.tasks.storage.csi_buckets import bucket_of

#: Keys of volumes that can be mapped, as shown in messages.
KEYS = "pvc/NAME, pvc/NAMESPACE/NAME, nfs:SERVER:/PATH, hostPath:/PATH, gs://BUCKET or s3://BUCKET"
MODES = ("MOUNT", "MOUNT_CACHED", "COPY")

_KEY = re.compile(
    r"pvc/(?:[a-z0-9][a-z0-9-]*/)?[a-z0-9][a-z0-9.-]*|nfs:[^:]+:/.*|hostPath:/.*|(?:gs|s3)://[^/]+(?:/.*)?"
)
_BUCKET = re.compile(r"(?:s3|gs|r2|cos|oci|nebius|cw|hf|https)://[^/$\s]+(?:/[^$]*)?")
_VOLUME_NAME = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]*[A-Za-z0-9])?")
_BUCKET_FIELDS = Fields("a bucket", read=("source", "mode"))
_VOLUME_FIELDS = Fields("a volume", read=("volume",))


def read_stores(mapping: Field) -> dict[str, CloudStorage]:
    """The mapping of a config file; errors are recorded in the field's report."""
    found: dict[str, CloudStorage] = {}
    for key, entry in mapping.entries().items():
        if not _KEY.fullmatch(key) or "$" in key:
            entry.refuse(f"no volume is named like this; write {KEYS}", show=False)
            continue
        store = _store(entry)
        if store is not None:
            found[key.rstrip("/") if not key.endswith(":/") else key] = store
    return found


def at_home(stores: Mapping[str, CloudStorage], namespace: str) -> dict[str, CloudStorage]:
    """The stores with both keys, pvc/NAME and pvc/NAMESPACE/NAME, for each claim of this namespace.

    In `stores` itself, pvc/NAME applies only to manifests that name no namespace.
    """
    within = f"pvc/{namespace}/"
    found = dict(stores)
    for key, store in stores.items():
        if key.startswith(within):
            found.setdefault(f"pvc/{key.removeprefix(within)}", store)
        elif key.startswith("pvc/") and key.count("/") == 1:
            found.setdefault(within + key.removeprefix("pvc/"), store)
    return found


def stand_in(
    stores: Mapping[str, CloudStorage], source: Field, kind: str
) -> tuple[str, tuple[CloudStorage, str] | None]:
    """The config key of a volume's source; and the mapped store with the path in it, None if unmapped."""
    if kind == "persistentVolumeClaim":
        namespace = source.report.namespace
        key = f"pvc/{namespace + '/' if namespace else ''}{source.at('claimName').text() or ''}"
        return key, (stores[key], "") if key in stores else None
    if kind == "csi":
        url = bucket_of(source) or ""
        scheme, _, place = url.partition("//")
        return url, find_store(stores, f"{scheme}/", place) if url else None
    path = source.at("path").text() or "/"
    prefix = "hostPath:" if kind == "hostPath" else f"nfs:{source.at('server').text() or ''}:"
    return prefix + path, find_store(stores, prefix, path)


def find_store(stores: Mapping[str, CloudStorage], kind: str, path: str) -> tuple[CloudStorage, str] | None:
    """The store mapped to the path or its nearest parent directory, and the rest of the path."""
    rest: list[str] = []
    parts = path.strip("/").split("/") if path.strip("/") else []
    while True:
        store = stores.get(f"{kind}/{'/'.join(parts)}")
        if store is not None:
            return store, "/".join(reversed(rest))
        if not parts:
            return None
        rest.append(parts.pop())


def _store(entry: Field) -> CloudStorage | None:
    if isinstance(entry.value, str):
        return _bucket(entry, "MOUNT")
    if not isinstance(entry.value, dict):
        entry.refuse("write a bucket such as s3://data/sets, or {volume: NAME} for a volume of SkyPilot")
        return None
    if entry.at("volume").value is None:
        entry.check(_BUCKET_FIELDS)
        return _bucket(entry.at("source"), entry.at("mode").choice(MODES) or "MOUNT")
    entry.check(_VOLUME_FIELDS)
    name = entry.at("volume").text()
    if name is None or not _VOLUME_NAME.fullmatch(name):
        entry.at("volume").refuse("must be the name of a volume that sky volumes ls shows")
        return None
    return SkyVolume(name)


def _bucket(source: Field, mode: str) -> Bucket | None:
    url = source.text()
    if url is None or not is_bucket(url):
        source.refuse("must be the URL of a bucket, such as s3://data/sets or gs://data")
        return None
    return Bucket(url.rstrip("/"), mode)


def is_bucket(url: str) -> bool:
    """Whether a text is the URL of a bucket that SkyPilot can mount, as far as its form tells."""
    return _BUCKET.fullmatch(url) is not None
