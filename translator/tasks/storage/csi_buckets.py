"""Buckets that CSI drivers mount into pods: gcsfuse of GKE and Mountpoint for S3, as volumes of a pod's own.

Sources: the drivers' documentation (volumeAttributes `bucketName` and `mountOptions`; bucketName `_` is every
bucket of the project; the mount option only-dir names a directory of gcsfuse, prefix one of Mountpoint).
"""

from __future__ import annotations

import re

from translator.field import Field

_SCHEMES = {"gcsfuse.csi.storage.gke.io": "gs", "s3.csi.aws.com": "s3"}
_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]+")
_DIRECTORY = re.compile(r"(?:^|[,\s])(?:--)?(?:only-dir|prefix)[=: ]\s*(?P<directory>[^,\s]+)")


def bucket_of(source: Field) -> str | None:
    """The URL of the bucket, or of a directory in one, that a `csi` source mounts; None if it mounts none."""
    scheme = _SCHEMES.get(str(source.at("driver").value))
    attributes = source.at("volumeAttributes")
    name = attributes.at("bucketName").value
    if scheme is None or not isinstance(name, str) or not _BUCKET_NAME.fullmatch(name):
        return None
    options = attributes.at("mountOptions").value
    found = _DIRECTORY.search(options) if isinstance(options, str) else None
    within = found["directory"].strip("/") if found else ""
    return None if "$" in within else f"{scheme}://{name}/{within}".rstrip("/")
