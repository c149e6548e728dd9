"""What `cloud.volumes` names, on machines that jobs share: one place per store, the same on all of them.

Every machine is rented with all stores mounted, for it is not known then whose jobs will come to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from starburst.clouds.sky.runs.docker import runs_in_container
from starburst.domain.job import Workload
from translator.carried import Bucket, CloudStorage
from translator.tasks.runtime_values import mounts_of
from translator.tasks.storage.mounts import told

NO_STORES: Mapping[str, CloudStorage] = MappingProxyType({})
#: Where they are mounted.
ROOT = "~/starburst-volumes"


def place(store: CloudStorage) -> str:
    """Where a store is on every machine that has it.

    The name is made of what it is: a machine that was rented before a key of the config came to mean another
    store has nothing there, instead of the wrong one.
    """
    what = f"{store.mode} {store.source}" if isinstance(store, Bucket) else f"volume {store.name}"
    return f"{ROOT}/{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def all_mounts(stores: Mapping[str, CloudStorage]) -> tuple[tuple[str, CloudStorage], ...]:
    """What is mounted on a machine, and where; what two keys mean is mounted once."""
    return tuple(sorted({place(store): store for store in stores.values()}.items(), key=lambda pair: pair[0]))


def volumes_of(workload: Workload, stores: Mapping[str, CloudStorage]) -> list[dict[str, Any]]:
    """The volumes of a run as the agent takes them.

    Raises:
        UnresolvedError: the config maps nothing to one of them (any more).
    """
    if workload.manifest is None:
        return []
    mounts = mounts_of(json.loads(workload.manifest), stores, in_container=runs_in_container(workload))
    return [
        {
            "path": mount.path,
            "store": None if mount.store is None else place(mount.store),
            "told": "emptyDir" if mount.store is None else told(mount.store),
            "copied": isinstance(mount.store, Bucket) and mount.store.mode == "COPY",
            "below": mount.below,
            "read_only": mount.read_only,
        }
        for mount in mounts
    ]
