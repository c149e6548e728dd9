"""What it costs that an image is not on a machine: the machine is paid for while it pulls.

    dollars = seconds of the pull · the machine's price · the job's share of it

The seconds of an image are learnt from pulls; before the first one they are assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from starburst.domain.money import Money

#: Seconds of a pull that was never observed: 5 GB, as PyTorch's images with CUDA have, at 40 MB/s with
#: unpacking.
UNKNOWN_S = 120.0
#: Longest pull that is believed, seconds.
LONGEST_S = 3600.0
#: Weight of the newest pull in the mean; networks and registries change.
NEWEST = 0.5
#: Largest number of remembered images.
MAX_IMAGES = 512


@dataclass(slots=True)
class PullTimes:
    """Mean seconds of a pull per image; above MAX_IMAGES the one pulled least recently is dropped."""

    _seconds: dict[str, float] = field(default_factory=dict)

    def expected_s(self, image: str) -> float:
        """Seconds that a machine without the image will pull for."""
        return self._seconds.get(image, UNKNOWN_S)

    def observe(self, image: str, seconds: float) -> None:
        """Record a pull onto a machine that did not have the image."""
        seconds = min(max(0.0, seconds), LONGEST_S)
        old = self._seconds.pop(image, seconds)
        self._seconds[image] = old + NEWEST * (seconds - old)
        while len(self._seconds) > MAX_IMAGES:
            del self._seconds[next(iter(self._seconds))]

    def snapshot(self) -> dict[str, float]:
        """Plain data for `restored`."""
        return dict(self._seconds)

    @classmethod
    def restored(cls, snapshot: Mapping[str, float]) -> PullTimes:
        """The inverse of `snapshot`."""
        return cls(dict(snapshot))


def pull_cost(seconds: float, per_hour: Money, share: float) -> Money:
    """What a job pays for while its image is pulled; `share` is its part of the machine, 0 to 1."""
    return Money(round(per_hour.for_seconds(seconds).micro_usd * share))
