"""The network between the machines of a gang: where SkyPilot can give the tier that the config asks for."""

from __future__ import annotations

from starburst.clouds.sky.offers import OfferName

#: SkyPilot's words.
STANDARD, BEST = "standard", "best"
#: Types to which SkyPilot 0.14 gives GPUDirect-TCPX on GCP; it fails to launch any other with `best`.
_GCP_TYPES = frozenset({"a3-edgegpu-8g", "a3-highgpu-8g"})


def network_tier(place: OfferName, nodes: int, wanted: str) -> str:
    """SkyPilot's `network_tier` for so many machines of an offer; "" asks for none.

    On AWS SkyPilot looks for itself whether the type has EFA. It refuses `best` on most other clouds.
    """
    has_best = place.cloud == "aws" or (place.cloud == "gcp" and place.instance_type in _GCP_TYPES)
    return BEST if wanted == BEST and nodes > 1 and has_best else ""
