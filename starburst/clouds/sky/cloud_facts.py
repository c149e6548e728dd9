"""What SkyPilot 0.14 can and cannot do on each cloud, and how long a machine takes to come up there.

SkyPilot has the first as "unsupported features" of its cloud classes, which take seconds to import; so the
names stand here, and a test compares them with the classes (`tests/clouds/sky/test_private_api.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

T = TypeVar("T")

#: STORAGE_MOUNTING: clouds on whose machines it mounts no object stores.
WITHOUT_MOUNTS = ("hyperbolic", "runpod", "seeweb", "shadeform", "vast", "verda", "yotta")
#: MULTI_NODE: clouds whose machines it rents one by one only, as they have no network among them.
WITHOUT_GANGS = (
    *("hyperbolic", "primeintellect", "runpod", "seeweb", "shadeform", "vast", "verda", "vsphere", "yotta"),
)
#: SPOT_INSTANCE: clouds of which it rents no spot machines, whatever prices a catalog has.
WITHOUT_SPOT = (
    *("cudo", "do", "fluidstack", "hyperbolic", "lambda", "paperspace", "scp", "seeweb", "shadeform"),
    *("vsphere", "yotta"),
)
#: AUTODOWN: clouds whose machines it cannot have given back by themselves; it refuses each launch that asks
#: for it, as all of ours do. A machine's own shutdown (`agent/dead_man_switch.py`) ends no bill there.
WITHOUT_AUTODOWN = ("hyperbolic", "primeintellect", "verda", "yotta")
#: Clouds whose "machines" are containers of an image that SkyPilot names, so none has a container engine. No
#: feature says so: `image_id` in its templates of these clouds is the container's.
CONTAINERS = ("runpod", "vast", "yotta")

#: Seconds from the request to a machine that takes jobs, with GPUs and without, by cloud. AWS and GCP: as
#: measured for SkyPilot's own images (skypilot#4091 and #4027, October 2024; without the search for a zone
#: that has one). Azure: `sky launch` as a whole (skypilot#4167). Lambda: more than 200 s (skypilot#3889).
#: For other clouds nothing was found, and none of these was measured here.
BOOT_S: Mapping[str, tuple[float, float]] = {
    "aws": (101.0, 73.0),
    "gcp": (75.0, 70.0),
    "azure": (160.0, 120.0),
    "lambda": (200.0, 200.0),
}


def boot_s(cloud: str, gpus: int) -> float:
    """Seconds until a machine of a cloud takes jobs, before any was rented there; 0 if unknown."""
    with_gpus, without = BOOT_S.get(cloud, (0.0, 0.0))
    return with_gpus if gpus else without


def possible(field: str | None, asked: T, clouds: Collection[str]) -> T:
    """What the config asks for in `bucket`, `volumes` or `spot`, if it can be had in these clouds.

    Raises:
        ValueError: it cannot; the message says where.
    """
    unable = [cloud for cloud in clouds if cloud in WITHOUT_MOUNTS]
    if field in ("bucket", "volumes") and asked and unable:
        raise ValueError(f"SkyPilot mounts nothing on {unable[0]}; leave it out, here or in cloud.clouds")
    if field == "spot" and asked == "only" and clouds and all(cloud in WITHOUT_SPOT for cloud in clouds):
        raise ValueError(f"SkyPilot rents no spot machines from {', '.join(clouds)}; write never")
    return asked
