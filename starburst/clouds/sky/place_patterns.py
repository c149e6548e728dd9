"""Patterns of where machines may be rented, as `cloud.allow` and `cloud.deny` have them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from starburst.clouds.sky.cloud_facts import WITHOUT_AUTODOWN

#: The clouds of virtual machines that SkyPilot 0.14 rents from, by its own names.
SKY_CLOUDS = (
    *("aws", "azure", "cudo", "do", "fluidstack", "gcp", "hyperbolic", "ibm", "lambda", "mithril", "nebius"),
    *("oci", "paperspace", "primeintellect", "runpod", "scp", "seeweb", "shadeform", "vast", "verda"),
    *("vsphere", "yotta"),
)
_USED = [name for name in SKY_CLOUDS if name not in WITHOUT_AUTODOWN]
#: How a pattern is written.
FORMS = "CLOUD, CLOUD/REGION or CLOUD/REGION/TYPE, such as */us-*/p5.*"


@dataclass(frozen=True, slots=True)
class PlacePattern:
    """CLOUD[/REGION[/INSTANCE_TYPE]], each a shell pattern; a part that is missing is any."""

    cloud: str
    region: str = "*"
    instance_type: str = "*"

    @classmethod
    def parse(cls, text: str) -> PlacePattern:
        """Parse a pattern.

        Raises:
            ValueError: it has not one to three parts, or an empty one.
        """
        parts = text.split("/")
        if len(parts) > 3 or not all(part.strip() for part in parts):
            raise ValueError(f"{text!r} is no place; write {FORMS}")
        return cls(*parts)

    def matches(self, cloud: str, region: str, instance_type: str) -> bool:
        """Whether a machine of this type there is meant."""
        return (
            fnmatchcase(cloud, self.cloud)
            and fnmatchcase(region, self.region)
            and fnmatchcase(instance_type, self.instance_type)
        )

    def __str__(self) -> str:
        return f"{self.cloud}/{self.region}/{self.instance_type}".removesuffix("/*").removesuffix("/*")


def known_cloud(name: str) -> str:
    """The name of a cloud, if SkyPilot has it and its machines end by themselves.

    Raises:
        ValueError: it has not, or they do not.
    """
    if name in WITHOUT_AUTODOWN:
        raise ValueError(
            "SkyPilot gives no machine there back by itself (autodown), so none would end without Starburst; "
            "leave it out"
        )
    if name in SKY_CLOUDS:
        return name
    close = get_close_matches(name.lower(), SKY_CLOUDS, n=1)
    mend = f"did you mean {close[0]}?" if close else f"write one of {', '.join(_USED)}"
    raise ValueError(f"SkyPilot rents machines from no cloud of this name; {mend}")


def pattern_of(text: str, clouds: Collection[str]) -> str:
    """A pattern's text, if it is one and can match something in these clouds.

    Raises:
        ValueError: it is none, or names none of the clouds.
    """
    cloud = PlacePattern.parse(text).cloud
    if not any(fnmatchcase(name, cloud) for name in clouds):
        raise ValueError(f"{text!r}: no cloud of cloud.clouds is {cloud}; there is {', '.join(clouds)}")
    return text
