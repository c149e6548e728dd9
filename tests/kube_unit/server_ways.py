"""What differs between the versions of Kubernetes in which the tests of `tests/kube` look at a server."""

from __future__ import annotations

from starburst.kube.features import Features
from starburst.kube.resources import Object

#: From here on the server serves the rest of a list from its own memory (KEP-4988, ListFromCacheSnapshot).
SNAPSHOTS = (1, 34)


def is_withdrawn(job: Object, features: Features) -> bool:
    """Whether a Job is to have no pods: suspended, or without parallelism where that is all there is."""
    spec = job["spec"]
    return spec.get("suspend") is True if features.suspend else spec.get("parallelism") == 0


def cuts_lists(features: Features) -> bool:
    """Whether a compaction of etcd ends a list between two of its pages (410)."""
    return features.version < SNAPSHOTS
