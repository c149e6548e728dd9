"""Where the stores that `cloud.volumes` names are mounted on rented machines: the same path on all of them.

Every machine is rented with all stores mounted, because it is not known then which jobs will use it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from starburst.clouds.sky.agent.protocol import VolumeMount
from starburst.clouds.sky.runs.docker import runs_in_container
from starburst.domain.job import Workload
from translator.carried import Bucket, CloudStorage
from translator.tasks.runtime_values import mounts_of
from translator.tasks.storage.mounts import told

#: The directory that stores are mounted in.
ROOT = "~/starburst-volumes"


def place(store: CloudStorage) -> str:
    """The path of a store on every machine.

    It is derived from the store, not from its key in the config: on a machine that was rented before the key
    came to mean another store, nothing is found there instead of the wrong store.
    """
    what = f"{store.mode} {store.source}" if isinstance(store, Bucket) else f"volume {store.name}"
    return f"{ROOT}/{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def all_mounts(stores: Mapping[str, CloudStorage]) -> tuple[tuple[str, CloudStorage], ...]:
    """Path and store of all mounts of a machine; a store that two keys name is mounted once."""
    return tuple(sorted({place(store): store for store in stores.values()}.items(), key=lambda pair: pair[0]))


def volumes_of(workload: Workload, stores: Mapping[str, CloudStorage]) -> list[VolumeMount]:
    """The volumes of a run as the agent takes them.

    Raises:
        UnresolvedError: the config maps no store to one of them.
    """
    if workload.manifest is None:
        return []
    mounts = mounts_of(json.loads(workload.manifest), stores, in_container=runs_in_container(workload))
    return [
        {
            "path": mount.path,
            "store": None if mount.store is None else place(mount.store),
            "told": ("a volume" if mount.files else "emptyDir") if mount.store is None else told(mount.store),
            "copied": isinstance(mount.store, Bucket) and mount.store.mode == "COPY",
            "below": mount.below,
            "read_only": mount.read_only,
            "files": mount.files,
            "memory_mib": mount.memory_mib,
        }
        for mount in mounts
    ]
